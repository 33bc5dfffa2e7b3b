"""One pod's life, as a task: images, volumes, agent, containers, end."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

from localkube.node.agents import Agent, AgentError
from localkube.node.context import HOST_ADDRESS, Context, container_id
from localkube.node.images import Image, ImageError
from localkube.node.launch import Launcher
from localkube.node.podstatus import ContainerState, PodState, ended_state, write_status
from localkube.node.probes import Probes
from localkube.node.volumes import VolumeError
from localkube.quantity import parse
from localkube.status import ApiError, Object
from localkube.store import now

log = logging.getLogger(__name__)

DEADLINE = "Pod was active on the node longer than the specified deadline"
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


class Ending:
    """Why and how fast the pod has to end; set once, the grace may still be shortened."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.changed = asyncio.Event()
        self.why = ""
        self.deadline = 0.0
        """On the monotonic clock."""

    def ask(self, why: str, grace_s: float) -> None:
        """End the pod within `grace_s`; a later call can only make it sooner."""
        deadline = time.monotonic() + grace_s
        if not self.event.is_set():
            self.why, self.deadline = why, deadline
            self.event.set()
        self.deadline = min(self.deadline, deadline)
        self.changed.set()


class Worker:
    """Drives one pod. Only this class writes the pod's status."""

    def __init__(self, context: Context, pod: Object, on_ready: Callable[[], None]) -> None:
        self._context, self._on_ready = context, on_ready
        self.namespace, self.name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.uid = pod["metadata"]["uid"]
        self.agent: Agent | None = None
        self.ending = Ending()
        self.launcher = Launcher(context, pod)
        self.state = self._load(pod)
        self._pod = pod
        self._starting = asyncio.Event()
        self._probes = Probes(self)
        self._images: dict[str, Image] = {}
        self.task = asyncio.create_task(self._run(), name=f"pod {self.namespace}/{self.name}")

    def _load(self, pod: Object) -> PodState:
        status = pod.get("status", {})
        known = {entry["name"]: entry for entry in status.get("containerStatuses", [])}
        return PodState(
            [ContainerState.load(container, known.get(container["name"])) for container in pod["spec"]["containers"]],
            status.get("startTime") or now(),
            status.get("podIP", ""),
        )

    # --- what others ask

    @property
    def pod(self) -> Object:
        """The pod as stored now, else as last seen. Never change it."""
        found = self._context.store.peek("pods", self.namespace, self.name)
        if found is not None and found["metadata"]["uid"] == self.uid:
            self._pod = found
        return self._pod

    def container(self, name: str) -> ContainerState | None:
        return next((c for c in self.state.main if c.name == name), None)

    def spec_of(self, name: str) -> Object:
        """The container of the manifest."""
        found: Object = next(c for c in self.pod["spec"]["containers"] if c["name"] == name)
        return found

    def changed(self, pod: Object) -> None:
        """The stored pod changed: perhaps it is being deleted, or faster than before."""
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self.ending.ask("deleted", float(metadata.get("deletionGracePeriodSeconds") or 0))

    def removed(self) -> None:
        """The pod object is gone: end at once and forget."""
        self.ending.ask("gone", 0.0)

    def publish(self) -> None:
        """Write the status; quietly does nothing when the pod is gone."""
        try:
            pod = self._context.store.get("pods", self.namespace, self.name)
            if pod["metadata"]["uid"] != self.uid:
                return
            write_status(pod, self.state, at=now(), host=HOST_ADDRESS)
            pod["metadata"].pop("resourceVersion", None)
            self._context.store.update("pods", pod, subresource="status")
        except ApiError as error:
            if error.code != 404:
                raise
        self._on_ready()

    def event(self, reason: str, message: str, *, warning: bool = False, container: str = "") -> None:
        self._context.event(self.pod, reason, message, warning=warning, container=container)

    # --- life

    async def _run(self) -> None:
        try:
            self.changed(self.pod)
            if self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                status = self.pod["status"]
                self.state.final = (status["phase"], status.get("reason", ""), status.get("message", ""))
            else:
                await self._live()
            if self.ending.why not in ("gone", "shutdown"):
                await self.ending.event.wait()
            if self.ending.why == "deleted":
                self._context.store.delete("pods", self.namespace, self.name, uid=self.uid, grace_period_s=0)
        except ApiError as error:
            if error.code not in (404, 409):
                log.exception("pod %s/%s", self.namespace, self.name)
        except Exception:  # a fault here must not take the node down; the pod stays as it is, and the log says why
            log.exception("pod %s/%s", self.namespace, self.name)
        finally:
            await self._probes.stop()

    async def _live(self) -> None:
        self.publish()
        life = asyncio.create_task(self._containers())
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        timer = None
        if limit is not None:
            started = datetime.strptime(self.state.start_time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            remaining = max(0.0, started.timestamp() + limit - time.time())
            timer = asyncio.get_running_loop().call_later(remaining, self._past_deadline)
        asked = asyncio.create_task(self.ending.event.wait())
        try:
            await asyncio.wait({life, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                await self._end(life)
            # Not done: the agent never told of the end; its shutdown below ends whatever is left.
            if life.done() and not life.cancelled():
                life.result()
        finally:
            asked.cancel()
            if timer:
                timer.cancel()
            life.cancel()
            await self._probes.stop()
            if self.agent:
                await self.agent.shutdown()
                self.agent = None
            self._context.network.release(self.uid)
        self._conclude()
        self.publish()

    def _past_deadline(self) -> None:
        if not self.ending.event.is_set():
            self.event("DeadlineExceeded", DEADLINE)
            self.ending.ask("deadline", float(self.pod["spec"].get("terminationGracePeriodSeconds", 30)))

    def _conclude(self) -> None:
        """The pod's final phase, from how its containers ended and why it was asked to end."""
        if self.ending.why == "gone":
            return
        never = self.pod["spec"].get("restartPolicy", "Always") == "Never"
        if self.ending.why == "shutdown":
            if not never or not self._begun():
                return  # goes on with the next start of localkube
            self.state.disrupted = SHUTDOWN
            self.state.final = ("Failed", "Terminated", SHUTDOWN)
            return
        if self.ending.why == "deadline":
            self.state.final = ("Failed", "DeadlineExceeded", DEADLINE)
            return
        good = all(container.succeeded for container in self.state.main)
        if self.state.disrupted and not good:
            self.state.final = ("Failed", "Terminated", self.state.disrupted)
        else:
            self.state.final = ("Succeeded" if good else "Failed", "", "")

    def _begun(self) -> bool:
        return any(c.running_since or c.terminated or c.restarts for c in self.state.main)

    async def _end(self, life: asyncio.Task[None]) -> None:
        """Graceful end: SIGTERM, the rest of the grace, SIGKILL. A pod still being set up just stops."""
        await self._probes.stop()
        for container in self.running():
            self.event("Killing", f"Stopping container {container.name}", container=container.name)
            await self.signal(container, signal.SIGTERM if self.ending.why != "gone" else signal.SIGKILL)
        if not self.running():
            life.cancel()
        while not life.done():
            left = self.ending.deadline - time.monotonic()
            if left <= 0:
                break
            self.ending.changed.clear()
            waiting = asyncio.create_task(self.ending.changed.wait())
            await asyncio.wait({life, waiting}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        for container in self.running():
            await self.signal(container, signal.SIGKILL)
        await asyncio.wait({life}, timeout=10)
        if self.ending.why == "shutdown":
            return
        for container in self.state.main:
            if container.running_since is None and container.terminated is None:
                never = {"code": 137, "started": "", "finished": ""}
                text = "The container could not be located when the pod was terminated"
                container.end(ended_state(never, reason="ContainerStatusUnknown", message=text, container_id=""))

    def running(self) -> list[ContainerState]:
        return [c for c in self.state.main if c.running_since and not c.terminated]

    async def signal(self, container: ContainerState, number: int) -> None:
        if self.agent:
            await self.agent.signal(f"{container.name}.{container.restarts}", number)

    async def _containers(self) -> None:
        """From nothing (or from what a killed localkube left) until every container has ended for good."""
        self.agent = await self.launcher.find()
        if self.agent is None:
            for container in self.state.main:
                await self._pull(container)
            sources = await self._retry_mount(self._mount)
            self.state.address = self._context.network.pod_address(self.uid, self.state.address or None)
            address = self.state.address
            self.agent = await self._retry_mount(lambda: self.launcher.launch(self._images, sources, address))
            if self.launcher.no_way_out:
                self.event("NetworkNotReady", self.launcher.no_way_out, warning=True)
        else:
            self._images = self.launcher.readopt()
            self.state.address = self._context.network.pod_address(self.uid, self.state.address or None)
        self.publish()  # variables may name the address
        await asyncio.gather(*(self._keep(container) for container in self.state.main))

    async def _mount(self) -> Any:
        return await asyncio.to_thread(
            self._context.volumes.prepare, self.pod, self.launcher.folder, self.launcher.host_uid
        )

    async def _retry_mount(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Until it works: claims get bound, Secrets get made. The first failure may only be a race; it is not told."""
        delay = self._context.timing.mount_retry_s / 5
        silent = True
        while True:
            try:
                return await attempt()
            except VolumeError as error:
                if not silent:
                    self.event("FailedMount", str(error), warning=True)
            except AgentError as error:
                self.event("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}", warning=True)
            await asyncio.sleep(delay)
            delay = min(delay * (5 if silent else 2), 120.0)
            silent = False

    async def _pull(self, container: ContainerState) -> None:
        """Until the image is there. Sets ErrImagePull and ImagePullBackOff in turn, as the kubelet does."""
        images, timing = self._context.images, self._context.timing
        quoted = f'image "{container.image}"'
        delay = timing.backoff_s
        while True:
            begun = time.monotonic()
            try:
                if images.present(container.image):
                    image = await images.pull(container.image, lambda _: None)
                    text = f"Container {quoted} already present on machine"
                else:
                    if self.spec_of(container.name).get("imagePullPolicy") == "Never":
                        await self._never_pull(container)
                    self.event("Pulling", f"Pulling {quoted}", container=container.name)
                    image = await images.pull(container.image, lambda text: self._progress(container, text))
                    took = f"{time.monotonic() - begun:.3f}s"
                    text = f"Successfully pulled {quoted} in {took} ({took} including waiting)."
                self.event("Pulled", text, container=container.name)
                self._images[container.image] = image
                container.image_id = f"localkube/{image.reference}@{image.digest}"
                if container.waiting[0] in ("ErrImagePull", "ImagePullBackOff"):
                    container.wait("ContainerCreating")
                return
            except ImageError as error:
                message = f"Failed to pull {quoted}: {error}"
                self.event("Failed", message, warning=True, container=container.name)
                self.event("Failed", "Error: ErrImagePull", warning=True, container=container.name)
                container.wait("ErrImagePull", str(error))
                self.publish()
                await asyncio.sleep(min(1.0, delay))
                self.event("BackOff", f"Back-off pulling {quoted}", container=container.name)
                self.event("Failed", "Error: ImagePullBackOff", warning=True, container=container.name)
                container.wait("ImagePullBackOff", f"Back-off pulling {quoted}: ErrImagePull: {error}")
                self.publish()
                await asyncio.sleep(delay)
                delay = min(delay * 2, timing.longest_backoff_s)

    async def _never_pull(self, container: ContainerState) -> NoReturn:
        """The manifest forbids to build what is not there; only a deletion ends this."""
        text = f'Container image "{container.image}" is not present with pull policy of Never'
        self.event("ErrImageNeverPull", text, warning=True, container=container.name)
        container.wait("ErrImageNeverPull", text)
        self.publish()
        await self.ending.event.wait()
        raise asyncio.CancelledError

    def _progress(self, container: ContainerState, text: str) -> None:
        self.event("Pulling", f'Pulling image "{container.image}": {text}', container=container.name)

    async def _keep(self, container: ContainerState) -> None:
        """Run a container again and again as the restart policy says; returns when it has ended for good."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        timing = self._context.timing
        delay, crashes = timing.backoff_s, 0
        assert self.agent is not None
        left = await self.launcher.left_over(self.agent, container)
        while not self.ending.event.is_set():
            if left == "nothing":
                await self._start(container)
            if left == "running":
                self._begin(container, await self.launcher.started(self.agent, container), adopted=True)
            ran = timing.stable_s if left == "ended" else await self._watch(container)
            left = "nothing"
            if self.ending.event.is_set():
                return
            again = policy == "Always" or (policy == "OnFailure" and not container.succeeded)
            if not again:
                return
            if ran >= timing.stable_s:
                crashes, delay = 0, timing.backoff_s
            if crashes and not await self._back_off(container, delay):
                return
            delay = min(delay * (2 if crashes else 1), timing.longest_backoff_s)
            crashes += 1
            container.restarts += 1

    async def _back_off(self, container: ContainerState, delay: float) -> bool:
        where = f"{self.name}_{self.namespace}({self.uid})"
        text = f"back-off {round(delay)}s restarting failed container={container.name} pod={where}"
        self.event(
            "BackOff",
            f"Back-off restarting failed container {container.name} in pod {where}",
            warning=True,
            container=container.name,
        )
        container.wait("CrashLoopBackOff", text)
        self.publish()
        try:
            await asyncio.wait_for(self.ending.event.wait(), delay)
        except TimeoutError:
            return True
        return False

    async def _start(self, container: ContainerState) -> None:
        assert self.agent is not None
        image = self._images[container.image]
        started = await self.launcher.start(self.agent, container, self.spec_of(container.name), image)
        self.event("Created", f"Created container: {container.name}", container=container.name)
        self._begin(container, started)
        self.event("Started", f"Started container {container.name}", container=container.name)
        self.publish()

    def _begin(self, container: ContainerState, started: str, *, adopted: bool = False) -> None:
        """It runs; one that ran before localkube's restart stays as ready as it was until a probe says otherwise."""
        container.container_id = container_id(self.uid, container.name, container.restarts)
        container.run(started)
        spec = self.spec_of(container.name)
        if not adopted:
            container.ready = "readinessProbe" not in spec
        self._probes.start(container, spec)

    async def _watch(self, container: ContainerState) -> float:
        """Until it ends; writes how. Returns how long it ran, in seconds."""
        assert self.agent is not None
        begun = time.monotonic()
        record = await self.launcher.wait(self.agent, container)
        await self._probes.stop(container)
        self._settle(container, record)
        self.publish()
        return time.monotonic() - begun

    def _settle(self, container: ContainerState, record: dict[str, Any]) -> None:
        reason, message = None, self.launcher.last_words(container, self.spec_of(container.name), int(record["code"]))
        if self.launcher.oom_killed(container, int(record["code"])):
            reason = "OOMKilled"
            self.event(
                "OOMKilling",
                f"Memory of container {container.name} went over its limit of {self._limit(container)}; it was killed",
                warning=True,
                container=container.name,
            )
        elif record.get("no_start"):
            program = self.launcher.program
            record = record | {"code": 128}
            reason = "StartError"
            message = (
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                "unable to start container process: error during container init: "
                f'exec: "{program}": executable file not found in $PATH'
            )
            self.event("Failed", f"Error: {message}", warning=True, container=container.name)
        elif record.get("orphaned"):
            self.state.disrupted = "localkube was away for too long, and the pod's processes were ended"
            reason = "ContainerStatusUnknown"
        container.end(ended_state(record, reason=reason, message=message, container_id=container.container_id))
        self.launcher.free(container)

    def _limit(self, container: ContainerState) -> str:
        return str(parse((self.spec_of(container.name).get("resources", {}).get("limits") or {}).get("memory", "0")))

    def forget(self) -> None:
        """Remove the pod's files; its object is gone."""
        shutil.rmtree(self.launcher.folder, ignore_errors=True)
