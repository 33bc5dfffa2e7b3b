"""The dev instances of a random life: what their owner and their nodes do, and what must hold of them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from apps.core.actors import Actor
from apps.core.errors import PortalError
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import ALIVE, LAUNCHED, Desired, InstanceState
from apps.tenants.models import Queue
from kubekit import names
from tests.faults.scripted import ENDED, Obj, ScriptedCluster, row_of

S = InstanceState
KIND = "instance"
#: So many are alive at once, which leaves room for programs beside them.
MOST = 2


class InstanceLives:
    """``steps`` are drawn, ``check`` holds after each of them, ``unsettled`` and ``check_end`` belong to the end."""

    def __init__(self, *, kube: ScriptedCluster, dice: Any, actor: Actor, queue: Queue) -> None:
        self.kube, self.dice, self.actor, self.queue = kube, dice, actor, queue
        self.steps: dict[Callable[[], None], int] = {
            self.make_instance: 3, self.start_instance: 3, self.stop_instance: 2, self.restart_instance: 1,
            self.delete_instance: 1, self.controllers_look: 8, self.pod_comes_up: 6, self.pod_answers: 6,
            self.program_crashes: 1, self.node_evicts: 1, self.node_goes: 1, self.node_returns: 2,
            self.node_lets_go: 4, self.somebody_ends_pod: 1, self.somebody_scales: 1, self.somebody_deletes_set: 1,
            self.quota_counts: 3,
        }  # fmt: skip
        self._asked: Counter[UUID] = Counter()
        self._launch: dict[UUID, int] = {}
        self._keys: dict[tuple[UUID, int], str] = {}
        self._answered: set[tuple[str, str]] = set()
        self._deleted: set[UUID] = set()

    # -- what people do ----------------------------------------------------------------------------------------------

    def make_instance(self) -> None:
        """A person makes an instance."""
        if len(self._rows()) < MOST:
            with suppress(PortalError):
                made = services.create(actor=self.actor, queue=self.queue.name, image="jupyter", size="small")
                self._asked[made.pk] += 1

    def start_instance(self) -> None:
        """A person starts one."""
        self._ask(services.start, launches=1)

    def stop_instance(self) -> None:
        """A person stops one."""
        self._ask(services.stop)

    def restart_instance(self) -> None:
        """A person restarts one."""
        self._ask(services.restart, launches=1)

    def delete_instance(self) -> None:
        """A person deletes one."""
        self._ask(services.delete)

    def _ask(self, service: Callable[..., Any], *, launches: int = 0) -> None:
        rows = self._rows()
        if rows:
            row = self.dice.choice(rows)
            self._asked[row.pk] += launches  # also when its process dies: it may have been committed
            with suppress(PortalError):
                service(actor=self.actor, instance=row)

    # -- what the cluster does -----------------------------------------------------------------------------------------

    def controllers_look(self) -> None:
        """Controllers of the cluster catch up."""
        self.kube.control()

    def quota_counts(self) -> None:
        """The quota's controller catches up."""
        self.kube.count()

    def pod_comes_up(self) -> None:
        """A node starts a pod."""
        for pod in self._pods("Pending")[:1]:
            if "deletionTimestamp" not in pod["metadata"]:
                self.kube.serve(pod, ready=False)

    def pod_answers(self) -> None:
        """A program is ready."""
        for pod in self._pods("Running"):
            if not _is_ready(pod) and pod["metadata"]["name"] not in self.kube.silent:
                self.kube.serve(pod, ready=True, restarts=_restarts(pod))
                self._answered.add((row_of(pod), pod["metadata"]["labels"][names.GENERATION]))
                return

    def program_crashes(self) -> None:
        """A program ends and is started again in its pod."""
        for pod in self._heard("Running")[:1]:
            self.kube.serve(pod, ready=False, restarts=_restarts(pod) + 1)

    def node_evicts(self) -> None:
        """A node takes a pod away."""
        for pod in self._heard("Running")[:1]:
            self.kube.finish(pod, exit_code=137, pod_reason="Evicted", at=self.kube.now())

    def node_goes(self) -> None:
        """A pod's node falls silent."""
        for pod in self._heard("Running")[:1]:
            self.kube.lose_contact(pod)

    def node_returns(self) -> None:
        """A silent node reports again."""
        for pod in self._pods("Running"):
            if pod["metadata"]["name"] in self.kube.silent:
                self.kube.lose_contact(pod, lost=False)
                self.kube.serve(pod, ready=_is_ready(pod), restarts=_restarts(pod))
                return

    def node_lets_go(self) -> None:
        """A pod that was told to end has ended."""
        for pod in self._heard("Running"):
            if "deletionTimestamp" in pod["metadata"]:
                self.kube.finish(pod, exit_code=143, at=self.kube.now())
                return

    def somebody_ends_pod(self) -> None:
        """A person with kubectl, or an eviction."""
        for pod in self._pods("Running", "Pending")[:1]:
            self.kube.ask_to_end(pod)

    def somebody_scales(self) -> None:
        """A person with kubectl wants a pod of an instance, or none."""
        workloads = self._workloads()
        if workloads:
            name = self.dice.choice(workloads)["metadata"]["name"]
            key = ("StatefulSet", self.queue.namespace, name)
            workload = self.kube.objects[key]
            workload["spec"]["replicas"] = 1 - workload["spec"]["replicas"]
            workload["metadata"]["generation"] += 1

    def somebody_deletes_set(self) -> None:
        """A person with kubectl takes the StatefulSet away."""
        workloads = self._workloads()
        if workloads:
            del self.kube.objects["StatefulSet", self.queue.namespace, self.dice.choice(workloads)["metadata"]["name"]]

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self, held: set[str]) -> None:
        """After each step; ``held`` are the ids that hold room in the ledger."""
        rows = {row.pk: row for row in Instance.objects.as_system().all()}
        live = Counter(row_of(pod) for pod in self._pods("Pending", "Running"))
        assert all(count == 1 for count in live.values()), "one live pod for each instance"
        assert held == {str(pk) for pk, row in rows.items() if not row.at_rest}, "room is held until it is at rest"
        for pk, row in rows.items():
            assert self._launch.get(pk, 0) <= row.launch <= self._asked[pk], "one launch for each that was asked for"
            self._launch[pk] = row.launch
            if row.state == S.DELETED:
                self._deleted.add(pk)
            assert (row.state == S.DELETED) == (pk in self._deleted), "what is deleted stays so"
            key = row.key.reveal() if row.key else ""
            if row.state in LAUNCHED:
                assert key and self._keys.setdefault((pk, row.launch), key) == key, "one key for each launch"
            else:
                assert not key or row.state == S.FAILED, "a key ends with its launch"
            if row.state == S.RUNNING:
                assert (str(pk), str(row.launch)) in self._answered, "nothing runs that never answered"
        known = Counter(self._keys.values())
        assert all(count == 1 for count in known.values()), "a new key for each launch"

    def serve_all(self) -> None:
        """Nodes and controllers, once the faults are over."""
        self.kube.control()
        for pod in self._pods("Pending"):
            if "deletionTimestamp" not in pod["metadata"]:
                self.kube.serve(pod, ready=False)
        for pod in self._pods("Running"):
            if "deletionTimestamp" in pod["metadata"]:
                self.kube.finish(pod, exit_code=143, at=self.kube.now())
        for _pod in self._pods("Running"):
            self.pod_answers()

    def unsettled(self) -> list[str]:
        """The instances that are not yet what their owner wants, by their rows and by their pods."""
        pods = {row_of(pod): _is_ready(pod) for pod in self._pods("Running")}
        pending = {row_of(pod) for pod in self._pods("Pending", *ENDED)}
        return [
            f"{row.pk} {row.state} ({row.reason_code}), wants {row.desired}, launch {row.launch}, "
            f"generation {row.observed_generation} of {row.generation}, due {row.due_at}"
            for row in Instance.objects.as_system().all()
            if not _is_settled(row)
            or pods.get(str(row.pk), False) != (row.state == S.RUNNING)
            or str(row.pk) in pending
        ]

    def check_end(self) -> None:
        """Everything is as the rows say, in the cluster too, and nothing else is there."""
        rows = {str(row.pk): row for row in Instance.objects.as_system().all()}
        running = {pk for pk, row in rows.items() if row.state == S.RUNNING}
        pods = self._pods("Pending", "Running", *ENDED)
        assert sorted(map(row_of, pods)) == sorted(running), "a pod for each that runs, and no other"
        for (kind, _namespace, _name), obj in self.kube.objects.items():
            row = rows.get(row_of(obj))
            if row is None or obj["metadata"]["labels"][names.KIND] != KIND:
                continue
            assert row.state in ALIVE, f"no {kind} of a deleted instance"
            assert kind != "Ingress" or str(row.pk) in running, "no route to what does not run"
            if kind == "StatefulSet":
                assert obj["spec"]["replicas"] == (str(row.pk) in running)
            if kind == "Secret":
                key = base64.b64decode(obj["data"]["key"]).decode()
                assert str(row.pk) not in running or key == row.key.reveal(), "the key of the launch that runs"
        for pk in running:
            kinds = {key[0] for key, obj in self.kube.objects.items() if row_of(obj) == pk}
            assert kinds == {"StatefulSet", "Service", "Secret", "Ingress"}, "all of an instance that runs"

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _rows(self) -> list[Any]:
        return list(Instance.objects.as_system().filter(state__in=ALIVE).order_by("created_at", "pk"))

    def _pods(self, *phases: str) -> list[Obj]:
        mine = [pod for pod in self.kube.pods.values() if pod["metadata"]["labels"].get(names.KIND) == KIND]
        found = [pod for pod in mine if pod["status"]["phase"] in phases]
        self.dice.shuffle(found)
        return found

    def _heard(self, *phases: str) -> list[Obj]:
        return [pod for pod in self._pods(*phases) if pod["metadata"]["name"] not in self.kube.silent]

    def _workloads(self) -> list[Obj]:
        return [obj for key, obj in self.kube.objects.items() if key[0] == "StatefulSet"]


def _is_settled(row: Any) -> bool:
    if row.state == S.RUNNING:
        return bool(row.desired == Desired.RUNNING and row.observed_generation == row.generation)
    return bool(row.at_rest and row.state in {S.STOPPED, S.FAILED, S.DELETED})


def _is_ready(pod: Obj) -> bool:
    return bool(pod["status"]["containerStatuses"][0].get("ready"))


def _restarts(pod: Obj) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])
