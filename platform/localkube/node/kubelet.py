"""The node: registers itself, gives each pod bound to it a worker, and answers logs, exec and port-forward."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import AsyncIterator, Callable

from localkube.config import Config
from localkube.node import editors, execs, fields, limits, logs
from localkube.node.agents import Agent
from localkube.node.context import HOST_ADDRESS, Context, Timing
from localkube.node.images import Images
from localkube.node.ingress import Ingresses
from localkube.node.network import Network
from localkube.node.prerequisites import NodeError, check_machine
from localkube.node.services import Services
from localkube.node.volumes import VolumeError, Volumes, loop_devices_work
from localkube.node.worker import Worker
from localkube.runtime import ExecSession, LogOptions
from localkube.status import Object, bad_request
from localkube.store import Store, now

log = logging.getLogger(__name__)

__all__ = ["Kubelet", "NodeError"]

_RELEASE_S = 3.0

LIMITS_LABEL = "localkube.io/limits"
VOLUMES_LABEL = "localkube.io/volume-sizes"


class Kubelet:
    """See runtime.NodeRuntime."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing or Timing()
        self._context: Context | None = None
        self._workers: dict[str, Worker] = {}
        self._unsubscribe: list[Callable[[], None]] = []
        self._services: Services | None = None
        self._ingresses: Ingresses | None = None
        self._refreshing: set[asyncio.Task[None]] = set()

    @property
    def context(self) -> Context:
        assert self._context is not None, "the node has not been started"
        return self._context

    async def start(self, store: Store, config: Config) -> None:
        """Raises NodeError when this machine cannot run sandboxes, with the line that changes that."""
        bwrap = await asyncio.to_thread(check_machine)
        home = config.home.absolute()
        (home / "pods").mkdir(parents=True, exist_ok=True, mode=0o700)
        home.chmod(0o700)
        self._context = Context(
            store=store,
            home=home,
            node_name=config.node_name,
            images=Images(config.images, editors.cache_of(home)),
            volumes=Volumes(store, home / "volumes", images=loop_devices_work(home)),
            limits=limits.detect(home),
            network=Network(store, str(home)),
            bwrap=bwrap,
            timing=self._timing,
        )
        if not self._context.root:
            self._context.volumes.images = False  # mounting them needs the stage that root prepares
        self._register(config)
        await self._clean_up()
        for resource, callback in (
            ("pods", self._on_pod),
            ("secrets", self._on_content),
            ("configmaps", self._on_content),
            ("persistentvolumes", self._on_volume),
        ):
            self._unsubscribe.append(store.subscribe(resource, callback))
        self._services = Services(store, self.dial)
        await self._services.start()
        if config.caddy_admin:
            self._ingresses = Ingresses(store, self._services, config.caddy_admin, config.hosts)
            self._ingresses.start()
        for pod in list(store.iterate("pods")):
            self._on_pod("ADDED", pod)

    async def stop(self) -> None:
        """End all pods, each within its grace period, then everything else. Pods that never restart fail."""
        if self._ingresses:
            await self._ingresses.stop()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for worker in self._workers.values():
            grace = float(worker.pod["spec"].get("terminationGracePeriodSeconds", 30))
            worker.ending.ask("shutdown", min(grace, self._timing.shutdown_grace_s))
        await asyncio.gather(*(worker.task for worker in self._workers.values()), return_exceptions=True)
        await asyncio.gather(*self._refreshing, return_exceptions=True)
        if self._services:
            await self._services.stop()
        if self._context:
            await self._context.limits.close()
            deadline = time.monotonic() + _RELEASE_S
            while not self._context.volumes.released() and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel's
                await asyncio.sleep(0.02)

    def _register(self, config: Config) -> None:
        store, context = self.context.store, self.context
        capacity = {
            "cpu": str(config.cpu),
            "memory": f"{config.memory // 1024}Ki",
            "pods": str(config.max_pods),
            "ephemeral-storage": f"{shutil.disk_usage(context.home).total // 1024}Ki",
        }
        if config.fake_gpus:
            capacity["nvidia.com/gpu"] = str(config.fake_gpus)
        labels = {
            "kubernetes.io/hostname": config.node_name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            LIMITS_LABEL: "hard" if context.limits.hard else "soft",
            VOLUMES_LABEL: "hard" if context.volumes.images else "soft",
        }
        if store.peek("nodes", None, config.node_name) is None:
            store.create("nodes", {"metadata": {"name": config.node_name, "labels": labels}, "spec": {}})
        node = store.get("nodes", None, config.node_name)
        node["metadata"]["labels"] = (node["metadata"].get("labels") or {}) | labels
        node = store.update("nodes", node)
        node["status"] = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": HOST_ADDRESS},
                {"type": "Hostname", "address": config.node_name},
            ],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastHeartbeatTime": now(),
                    "lastTransitionTime": now(),
                }
            ],
            "nodeInfo": {
                "architecture": labels["kubernetes.io/arch"],
                "operatingSystem": "linux",
                "osImage": platform.platform(),
                "kernelVersion": platform.release(),
                "containerRuntimeVersion": "bubblewrap",
                "kubeletVersion": "localkube",
            },
            "images": [{"names": [name], "sizeBytes": 0} for name in context.images.references],
        }
        store.update("nodes", node, subresource="status")

    async def _clean_up(self) -> None:
        """End what a killed localkube left of pods that are no longer in the store."""
        context = self.context
        alive = {pod["metadata"]["uid"] for pod in context.store.iterate("pods")}
        for folder in sorted((context.home / "pods").iterdir()):
            if folder.name not in alive:
                agent = await Agent.find(folder / "state") if (folder / "state").is_dir() else None
                if agent:
                    await agent.shutdown()
                shutil.rmtree(folder, ignore_errors=True)
        context.limits.sweep({f"{uid}-" for uid in alive})
        if "LOCALKUBE_IMAGE_CACHE" not in os.environ:  # a shared cache may serve other tables
            staged = [path.read_text() for path in (context.home / "pods").glob("*/staged.json")]
            await asyncio.to_thread(context.images.prune, " ".join(staged))
        known = {volume["metadata"]["name"] for volume in context.store.iterate("persistentvolumes")}
        context.volumes.keep_only(known)

    # --- following the store

    def _on_pod(self, event: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if event == "DELETED":
            if worker:
                worker.removed()
                self._refresh(self._forget(worker))
            return
        if worker:
            worker.changed(pod)
        elif pod["spec"].get("nodeName") == self.context.node_name:
            self._workers[uid] = Worker(self.context, pod, self._on_ready)

    def _on_ready(self) -> None:
        if self._ingresses:
            self._ingresses.nudge()

    async def _forget(self, worker: Worker) -> None:
        await asyncio.wait({worker.task})
        self._workers.pop(worker.uid, None)
        await asyncio.to_thread(worker.forget)

    def _refresh(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    def _on_content(self, event: str, obj: Object) -> None:
        """A Secret or ConfigMap changed: rewrite it where running pods have it mounted."""
        if event != "MODIFIED":
            return
        for worker in self._workers.values():
            if worker.namespace != obj["metadata"]["namespace"]:
                continue
            for volume in worker.pod["spec"].get("volumes", []):
                place = worker.launcher.folder / "volumes" / volume["name"]
                if ("secret" in volume or "configMap" in volume) and place.exists():
                    with contextlib.suppress(VolumeError):
                        self.context.volumes.project(worker.pod, volume, place, worker.launcher.host_uid)

    def _on_volume(self, event: str, volume: Object) -> None:
        if event == "DELETED":
            self._refresh(asyncio.to_thread(self.context.volumes.remove, volume["metadata"]["name"]))

    # --- what the API server asks

    def check_pod(self, pod: Object) -> tuple[list[str], list[str]]:
        return fields.check_pod(pod)

    def _worker(self, pod: Object) -> Worker:
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is None:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        return worker

    async def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        worker = self._worker(pod)
        state = worker.container(container)
        if state is None:
            raise bad_request(f"container {container} is not valid for pod {worker.name}")
        number = state.restarts - 1 if options.previous else state.restarts
        while number >= 0 and not options.previous and not worker.launcher.log(container, number).exists():
            number -= 1  # waiting to be restarted: the last run's log is the one to show
        path = worker.launcher.log(container, number)
        if number < 0 or not path.exists():
            if options.previous:
                raise bad_request(f'previous terminated container "{container}" in pod "{worker.name}" not found')
            reason = state.waiting[0]
            raise bad_request(f'container "{container}" in pod "{worker.name}" is waiting to start: {reason}')

        def running() -> bool:
            return state.restarts == number and state.running_since is not None and not worker.task.done()

        async for piece in logs.read(path, options, running):
            yield piece

    async def exec(self, pod: Object, container: str, command: list[str], *, tty: bool, stdin: bool) -> ExecSession:
        worker = self._worker(pod)
        state = worker.container(container)
        if state is None:
            raise bad_request(f"container {container} is not valid for pod {worker.name}")
        return await execs.open_session(worker, state, command, tty=tty, stdin=stdin)

    async def dial(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is None or worker.agent is None:
            raise ConnectionRefusedError(f"pod {pod['metadata']['name']} does not run")
        return await asyncio.open_connection(sock=await worker.agent.dial(port))
