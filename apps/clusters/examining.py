"""Ask a cluster what it has and try what cannot be asked: reading, then a namespace of probes that always goes again.

Each wait is bounded by the monotonic clock. A probe's namespace is deleted when the examination ends, however it ends;
if the process dies, the next examination or the reaper finds it by its labels (`apps.clusters.checks`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.clusters.exposing import gateway_of
from apps.clusters.models import Cluster, Exposure
from apps.core import crashpoints
from kubekit import client, names
from kubekit.build import probe
from kubekit.build.probe import FREE, GUARDED, MAPPED, ProbeSpec
from kubekit.checkup import Line, facts, gateways, tried
from kubekit.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from kubekit.observe import PodObservation, observe_pod, parse_time
from kubekit.permissions import NEEDED

log = logging.getLogger(__name__)

POD_START_S = 90.0
ACCOUNT_S = 15.0
"""How long a new namespace may take to get its service account, without which no pod can be made."""
SHUT_S = 20.0
"""How long a policy may take to be in force; enforcing plugins need a second or two."""
STORAGE_S = 45.0
PAUSE_S = 0.4
MODES = {"ReadWriteOnce": "rwo", "ReadWriteMany": "rwx"}
MOST_CLASSES = 6
MOST_EVENTS = 50
_IMAGE_TROUBLE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_ENDS_IT = (Unreachable, Unauthorized)

Obj = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Examination:
    """One examination of one cluster. ``beat`` is called again and again while it waits; it may raise to end it."""

    server: client.Cluster
    cluster: Cluster
    spec: ProbeSpec | None
    beat: Callable[[], None]
    login_ends: datetime | None = None

    def lines(self) -> Iterator[Line]:
        """Everything, in the order of the page. Raises `KubeError` when the cluster does not answer (any more)."""
        answer = self.server.version()
        yield facts.version(answer)
        if facts.too_old(answer):
            return
        yield facts.login(self.login_ends, timezone.now())
        yield from self.permissions()
        classes = yield from self._read()
        if self.spec is None:
            yield Line(topic="probes", code="probes_no_image", result="unknown")
            return
        yield from self._try(self.spec, classes)

    def permissions(self) -> Iterator[Line]:
        """Each entry of the list, verb by verb."""
        account = self._account()
        for entry in NEEDED:
            missing = [
                verb
                for verb in entry.verbs
                if not self.server.access_review(verb=verb, kind=entry.kind, subresource=entry.subresource or None)
            ]
            self.beat()
            yield facts.permission(entry, missing, account=account, exposure=self.cluster.exposure)

    def _account(self) -> str:
        try:
            return self.server.whoami()
        except _ENDS_IT:
            raise
        except KubeError:
            return ""  # servers before 1.28 do not tell; the command then has a place for the name

    # -- what can be read --------------------------------------------------------------------------------------

    def _read(self) -> Generator[Line, None, list[Obj]]:
        """Lines about what the cluster lists; returns its storage classes."""
        by_ingress = self.cluster.exposure == Exposure.INGRESS
        by_gateway_api = self.cluster.exposure == Exposure.HTTPROUTE
        storage = self._list("StorageClass")
        yield _line_or(storage, "storage_class", lambda found: facts.default_storage(found, chosen=self._storage_class))
        yield _line_or(
            self._list("IngressClass"),
            "ingress",
            lambda found: facts.ingress(found, chosen=self.cluster.ingress_class, needed=by_ingress),
        )
        versions = self.server.served(facts.GATEWAY_GROUP)
        classes = self._list("GatewayClass") if versions else []
        yield _line_or(
            classes,
            "gateway",
            lambda found: facts.gateway(versions, found, needed=by_gateway_api),
        )
        if versions and by_gateway_api:
            yield from self._gateway(classes)
        nodes = self._list("Node")
        measured = self._list("NodeMetrics")
        count = len(measured) if isinstance(measured, list) else measured
        yield facts.metrics(count, nodes=len(nodes) if isinstance(nodes, list) else 0)
        yield from facts.gpus(nodes) if isinstance(nodes, list) else [_refused("gpu", nodes)]
        yield _line_or(self._list("PriorityClass"), "priority", facts.priorities)
        return storage if isinstance(storage, list) else []

    def _gateway(self, classes: list[Obj] | KubeError) -> Iterator[Line]:
        """The Gateway of the settings, and which of its listeners would take the instances' routes."""
        cluster = self.cluster
        ref = gateway_of(cluster)
        if ref is None:
            return
        wanted = gateways.Wanted(
            ref=ref, domain=cluster.apps_domain, scheme=cluster.apps_scheme, port=cluster.apps_port
        )
        known = classes if isinstance(classes, list) else []
        self.beat()
        try:
            raw = self.server.get("Gateway", ref.namespace, ref.name)
        except NotFound:
            yield gateways.parent(None, wanted, classes=known)
            return
        except _ENDS_IT:
            raise
        except KubeError as error:
            yield Line(
                topic="gateway_parent", code="not_told", result="unknown", params=wanted.params,
                evidence=(error.message,),
            )  # fmt: skip
            return
        yield gateways.parent(raw, wanted, classes=known)
        yield gateways.listener(raw, wanted)

    @property
    def _storage_class(self) -> str:
        return str(self.cluster.storage_class)

    def _list(self, kind: str) -> list[Obj] | KubeError:
        """All objects of a kind, or why they cannot be had; what ends the examination is raised."""
        self.beat()
        try:
            return list(self.server.list(kind))
        except _ENDS_IT:
            raise
        except KubeError as error:
            return error

    # -- what has to be tried ----------------------------------------------------------------------------------

    def _try(self, spec: ProbeSpec, classes: list[Obj]) -> Iterator[Line]:
        try:
            made = self.server.create(probe.namespace(spec))
        except _ENDS_IT:
            raise
        except KubeError as error:
            yield Line(topic="probes", code="probes_refused", result="missing", evidence=(error.message,))
            return
        ours = timezone.now()
        crashpoints.reach("check-namespace")
        try:
            yield facts.clock(parse_time(made["metadata"].get("creationTimestamp")), ours)
            trial = _Trial(self.server, spec, self.beat)
            trial.begin(_tryable(classes, chosen=self._storage_class))
            yield tried.pod_security(trial.privileged(), level=spec.pod_security)
            yield trial.user_namespaces(wanted=self.cluster.user_namespaces)
            yield tried.network(trial.network())
            yield from trial.storage(classes, chosen=self._storage_class)
        finally:
            remove(self.server, made)


def remove(server: client.Cluster, namespace: Mapping[str, Any]) -> bool:
    """Delete a probe's namespace and all in it; True when the cluster took it. What fails is left to the reaper."""
    metadata = namespace["metadata"]
    try:
        server.delete("Namespace", None, metadata["name"], uid=metadata["uid"])
    except NotFound:
        return True
    except KubeError as error:
        log.warning("the namespace %s of a check is still there: %s", metadata["name"], error)
        return False
    return True


def remove_leftovers(
    server: client.Cluster, *, install: str, alive: Callable[[Collection[str]], Collection[str]]
) -> None:
    """Delete the namespaces of this portal's checks that no longer run. ``alive`` answers which of some ids do."""
    found = list(server.list("Namespace", labels={names.INSTALL: install, names.KIND: probe.KIND}))
    running = alive([_label(raw, names.ID) for raw in found])
    for raw in found:
        if _label(raw, names.ID) not in running and not raw["metadata"].get("deletionTimestamp"):
            remove(server, raw)


def _label(raw: Mapping[str, Any], key: str) -> str:
    return str((raw["metadata"].get("labels") or {}).get(key, ""))


def _line_or(found: list[Obj] | KubeError, topic: str, judge: Callable[[list[Obj]], Line]) -> Line:
    return judge(found) if isinstance(found, list) else _refused(topic, found)


def _refused(topic: str, error: KubeError) -> Line:
    return Line(topic=topic, code="not_told", result="unknown", evidence=(error.message,))


def _used(classes: list[Obj], *, chosen: str) -> str:
    """The class that volumes of the portal come from."""
    if chosen:
        return chosen
    for raw in classes:
        if (raw["metadata"].get("annotations") or {}).get(facts.DEFAULT_STORAGE) == "true":
            return str(raw["metadata"]["name"])
    return ""


def _tryable(classes: list[Obj], *, chosen: str) -> list[Obj]:
    """The classes to try, the used one first: those that take back what is released, and not too many."""
    used = _used(classes, chosen=chosen)
    good = [raw for raw in classes if raw.get("reclaimPolicy", "Delete") == "Delete"]
    return sorted(good, key=lambda raw: raw["metadata"]["name"] != used)[:MOST_CLASSES]


class _Trial:
    """What was put up in the probe's namespace."""

    def __init__(self, server: client.Cluster, spec: ProbeSpec, beat: Callable[[], None]) -> None:
        self._server, self._spec, self._beat = server, spec, beat
        self._refused: dict[str, KubeError] = {}
        self._claims: dict[str, dict[str, str]] = {}
        self._began = time.monotonic()

    def begin(self, classes: list[Obj]) -> None:
        """Make all that can be made at once, so that the waits run side by side."""
        self._create(probe.talker(self._spec, GUARDED))
        self._create(probe.mapped(self._spec))
        for number, raw in enumerate(classes):
            name = raw["metadata"]["name"]
            self._claims[name] = {mode: f"claim-{number}-{short}" for mode, short in MODES.items()}
            for place, (mode, claim) in enumerate(self._claims[name].items()):
                made = self._create(probe.claim(self._spec, claim, storage_class=name, access_mode=mode))
                if made and raw.get("volumeBindingMode") == "WaitForFirstConsumer":
                    self._create(probe.mounting(self._spec, 2 * number + place, [claim]))

    def privileged(self) -> KubeError | None:
        """What the server says to a privileged pod."""
        try:
            self._server.create(probe.privileged(self._spec), dry_run=True)
        except _ENDS_IT:
            raise
        except KubeError as error:
            return error
        return None

    def user_namespaces(self, *, wanted: bool) -> Line:
        """Wait for the pod that prints its map."""
        pod = self._wait_for_pod(MAPPED, lambda seen: seen.finished)
        if pod is None or pod.phase != "Succeeded":
            return tried.user_namespaces("", why=self._why(MAPPED), wanted=wanted)
        return tried.user_namespaces(self._log(MAPPED).decode("utf-8", "replace"), wanted=wanted)

    # -- network -----------------------------------------------------------------------------------------------

    def network(self) -> tried.NetworkTrial:
        """Open without a policy, shut under it, open again: only all three together say that it is enforced."""
        guarded = self._wait_for_pod(GUARDED, lambda seen: bool(seen.ip) and seen.phase == "Running")
        if guarded is None or not guarded.ip:
            return tried.NetworkTrial(why=self._why(GUARDED))
        self._create(probe.talker(self._spec, FREE, peer=guarded.ip))
        if self._wait_for_pod(FREE, lambda seen: seen.phase == "Running") is None:
            return tried.NetworkTrial(why=self._why(FREE))
        if not self._until(lambda: all(self._ways("open").values()), SHUT_S):
            return tried.NetworkTrial(ran=True)
        before = self._counts()
        began = time.monotonic()
        self._server.apply(probe.policy(self._spec, in_force=True))
        self._until(lambda: all(self._ways("shut").values()), SHUT_S)
        seconds = time.monotonic() - began
        shut = self._ways("shut")
        # A pod that no longer knocks says nothing, whatever its last lines are.
        alive = all(count >= before[name] + tried.SETTLED for name, count in self._counts().items())
        self._server.apply(probe.policy(self._spec, in_force=False))
        again = self._until(lambda: all(self._ways("open").values()), SHUT_S) if any(shut.values()) else True
        return tried.NetworkTrial(ran=True, open_before=True, shut=shut, alive=alive, open_after=again, seconds=seconds)

    def _ways(self, word: str) -> dict[str, bool]:
        """For each direction whether its latest knocks were all ``word``: into the guarded pod, and out of it."""
        return {way: tried.knocks(self._log(name)).all(word) for way, name in (("into", FREE), ("out", GUARDED))}

    def _counts(self) -> dict[str, int]:
        return {name: tried.knocks(self._log(name)).count for name in (FREE, GUARDED)}

    # -- storage -----------------------------------------------------------------------------------------------

    def storage(self, classes: list[Obj], *, chosen: str) -> Iterator[Line]:
        """A line for each class, once its claims are bound or have had their time."""
        left = STORAGE_S - (time.monotonic() - self._began)
        self._until(lambda: not self._unbound(), max(left, 0.0))
        unbound = self._unbound()
        used = _used(classes, chosen=chosen)
        for name, claims in self._claims.items():
            trials = {
                mode: tried.ClaimTrial(bound=claim not in unbound, said=self._said(claim) if claim in unbound else ())
                for mode, claim in claims.items()
            }
            yield tried.storage(name, trials, used=name == used)
        for raw in classes:
            if raw["metadata"]["name"] not in self._claims:
                yield tried.storage_kept(raw["metadata"]["name"])

    def _unbound(self) -> set[str]:
        wanted = {claim for claims in self._claims.values() for claim in claims.values()}
        found = self._server.list("PersistentVolumeClaim", self._spec.namespace)
        return wanted - {raw["metadata"]["name"] for raw in found if (raw.get("status") or {}).get("phase") == "Bound"}

    def _said(self, name: str) -> tuple[str, ...]:
        """What stands in the way of an object, in the cluster's words, latest last."""
        if name in self._refused:
            return (self._refused[name].message,)
        found = list(self._server.list("Event", self._spec.namespace, fields={"involvedObject.name": name}))
        texts = [f"{raw.get('reason', '')}: {raw.get('message', '')}"[:300] for raw in found[-MOST_EVENTS:]]
        return tuple(dict.fromkeys(texts))[-3:]

    # -- pods --------------------------------------------------------------------------------------------------

    def _create(self, obj: Obj) -> bool:
        """Make one object; what the cluster refuses is kept for the line that would have used it."""
        name = obj["metadata"]["name"]
        end = time.monotonic() + ACCOUNT_S
        while True:
            try:
                self._server.create(obj)
            except _ENDS_IT:
                raise
            except KubeError as error:
                if _waits_for_account(error) and time.monotonic() < end:
                    self._pause()
                    continue
                self._refused[name] = error
                return False
            return True

    def _wait_for_pod(self, name: str, good: Callable[[PodObservation], bool]) -> PodObservation | None:
        """The pod once it is as wanted; None when it was refused, ended, cannot get its image, or had its time."""
        if name in self._refused:
            return None
        end = time.monotonic() + POD_START_S
        while time.monotonic() < end:
            try:
                pod = observe_pod(self._server.get("Pod", self._spec.namespace, name))
            except NotFound:
                return None
            if good(pod):
                return pod
            main = pod.main
            if pod.finished or (main is not None and main.reason in _IMAGE_TROUBLE):
                return None
            self._pause()
        return None

    def _why(self, name: str) -> tuple[str, ...]:
        """Why a pod did not come to what was wanted of it."""
        if name in self._refused:
            return (self._refused[name].message,)
        try:
            pod = observe_pod(self._server.get("Pod", self._spec.namespace, name))
        except NotFound:
            return ()
        main = pod.main
        texts = [f"{main.reason}: {main.message}".strip(": ")] if main is not None and main.state != "running" else []
        texts += [row.message for row in pod.conditions.values() if row.message and not row.true]
        return tuple(dict.fromkeys(text[:300] for text in (*texts, *self._said(name)) if text))

    def _log(self, name: str) -> bytes:
        try:
            return self._server.log_tail(self._spec.namespace, name, "main", tail_lines=2000)
        except _ENDS_IT:
            raise
        except KubeError:
            return b""  # not started yet, or not readable: then nothing is known of it, and the verdict says so

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() >= end:
                return False
            self._pause()
        return True

    def _pause(self) -> None:
        self._beat()
        time.sleep(PAUSE_S)


def _waits_for_account(error: KubeError) -> bool:
    """A new namespace gets its service account a moment later."""
    return isinstance(error, Forbidden) and "service account" in error.message
