"""Between a pod's worker and its agent: what to stage, how to start a container, what is left after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

from localkube.node import containers
from localkube.node.agents import Agent, AgentError, AgentGone
from localkube.node.context import Context
from localkube.node.images import Image
from localkube.node.limits import Group
from localkube.node.logs import parse as parse_line
from localkube.node.network import Egress, Network, nameservers
from localkube.node.podstatus import ContainerState
from localkube.node.sandbox import Bind, Sandbox, bwrap_options, identity_files, system_binds
from localkube.node.volumes import Source
from localkube.quantity import parse
from localkube.status import Object
from localkube.store import now

_STAGE: Final = next((place for place in ("/mnt", "/media", "/srv") if Path(place).is_dir()), "/opt")
"""Covered, in the mount namespace of each agent alone, by what root prepared for its pod."""

_IDENTITY: Final = ("passwd", "group", "hostname", "hosts", "resolv.conf")


class Launcher:
    """Everything about one pod that needs the host's files."""

    def __init__(self, context: Context, pod: Object) -> None:
        self._context, self._pod = context, pod
        self.uid = pod["metadata"]["uid"]
        self.folder = context.pod_folder(self.uid)
        self.state_folder = self.folder / "state"
        self.host_uid = context.host_uid(pod["metadata"]["namespace"])
        self.no_way_out = ""
        self.program = ""
        self._sources: dict[str, Source] = {}
        self._staged: list[str] = []
        self._groups: dict[str, Group] = {}

    def log(self, container: str, number: int) -> Path:
        """The log file of a container's start number `number`."""
        return self.state_folder / f"{container}.{number}.log"

    async def find(self) -> Agent | None:
        """The pod's agent from before a restart, if it lives."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.state_folder.mkdir(exist_ok=True, mode=0o700)
        return await Agent.find(self.state_folder)

    async def launch(self, images: dict[str, Image], sources: dict[str, Source], address: str) -> Agent:
        """Start the pod's agent with everything staged that its containers will see. Raises AgentError."""
        self._sources = sources
        reach = self._context.network.egress(self._pod)
        pasta = self._context.network.pasta(reach.families) if reach.allowed else None
        self.no_way_out = Network.why_no_pasta() if reach.allowed and pasta is None else ""
        resolvers = nameservers() if pasta else []
        self._write_identity(address, resolvers)
        if self.host_uid is not None:
            os.chown(self.state_folder, self.host_uid, self.host_uid)
        stage = self._stage(images)
        self._staged = [entry["source"] for entry in stage]
        (self.folder / "stage").mkdir(exist_ok=True)
        config = self._config(stage, reach, pasta, resolvers)
        kept = {
            "staged": self._staged,
            "sources": {name: dataclasses.asdict(source) for name, source in sources.items()},
            "images": {name: dataclasses.asdict(image) for name, image in images.items()},
        }
        (self.folder / "staged.json").write_text(json.dumps(kept, default=str))
        return await Agent.launch(self.state_folder, config)

    def _config(
        self, stage: list[dict[str, Any]], reach: Egress, pasta: list[str] | None, resolvers: list[str]
    ) -> dict[str, Any]:
        return {
            "host_uid": self.host_uid,
            "inner_uid": containers.DEFAULT_UID,
            "hostname": (self._pod["spec"].get("hostname") or self._pod["metadata"]["name"])[:63],
            "stage": stage,
            "stage_folder": str(self.folder / "stage"),
            "stage_target": _STAGE,
            "bwrap": self._context.bwrap,
            "orphan_after_s": self._context.timing.orphan_after_s,
            "pasta": pasta,
            "blocked": list(reach.blocked),
            "opened": [*reach.opened, *(f"{server}/32" for server in resolvers)],
        }

    def _stage(self, images: dict[str, Image]) -> list[dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for image in images.values():
            for bind in image.binds:
                entries[bind.source] = {"source": bind.source, "kind": "bind", "read_only": True}
        for name, read_only in (("etc", True), ("term", False)):
            path = str(self.folder / name)
            entries[path] = {"source": path, "kind": "bind", "read_only": read_only}
        for source in self._sources.values():
            if source.kind != "tmpfs":
                entries[source.path] = {"source": source.path, "kind": source.kind, "uid": self.host_uid}
        return list(entries.values())

    def _locate(self, bind: Bind) -> str:
        """Where the sandbox finds a source: in the stage as root, at its own place otherwise."""
        if self.host_uid is None:
            return bind.source
        for index, staged in enumerate(self._staged):
            if bind.source == staged or bind.source.startswith(staged + "/"):
                return f"{_STAGE}/{index}{bind.source[len(staged) :]}"
        return bind.source

    def _write_identity(self, address: str, resolvers: list[str]) -> None:
        spec, name = self._pod["spec"], self._pod["metadata"]["name"]
        uid, gid = containers.user(self._pod, spec["containers"][0])
        files = identity_files(uid=uid, gid=gid, hostname=name, address=address, nameservers=resolvers)
        for folder in ("etc", "term"):
            (self.folder / folder).mkdir(exist_ok=True)
        for file, text in files.items():
            (self.folder / "etc" / file).write_text(text)

    def readopt(self) -> dict[str, Image]:
        """Know again what a running agent has staged; returns the images its containers restart from.

        They are not asked of the table, which may have changed since: what is not staged, the agent cannot start.
        """
        known = json.loads((self.folder / "staged.json").read_text())
        self._staged = known["staged"]
        self._sources = {name: Source(**source) for name, source in known["sources"].items()}
        return {name: _load_image(image) for name, image in known["images"].items()}

    # --- containers

    def _sandbox(self, container: Object, image: Image) -> Sandbox:
        term = Bind(
            str(self.folder / "term" / container["name"]),
            container.get("terminationMessagePath") or "/dev/termination-log",
            read_only=False,
        )
        own = [Bind(str(self.folder / "etc" / name), f"/etc/{name}") for name in _IDENTITY]
        return containers.sandbox(
            self._pod_now(), container, image=image, sources=self._sources, own_binds=[*own, term]
        )

    def _pod_now(self) -> Object:
        metadata = self._pod["metadata"]
        return self._context.store.peek("pods", metadata["namespace"], metadata["name"]) or self._pod

    async def start(self, agent: Agent, state: ContainerState, container: Object, image: Image) -> str:
        """Start a container under its limits; returns when (RFC 3339). Raises AgentError."""
        term = self.folder / "term" / container["name"]
        term.write_bytes(b"")
        term.chmod(0o666)
        made = self._sandbox(container, image)
        options = bwrap_options(made, system=system_binds(), locate=self._locate)
        child = f"{state.name}.{state.restarts}"
        self._prune(state)
        self.program = made.argv[0]
        pid = await agent.start(child, options=options, argv=made.argv, log=f"{child}.log", record=f"{child}.json")
        limits = container.get("resources", {}).get("limits") or {}
        memory, cpu = parse(limits.get("memory", "0")).value, parse(limits.get("cpu", "0")).nano // 1_000_000
        group = self._context.limits.group(f"{self.uid}-{state.name}", memory=memory or None, cpu_milli=cpu or None)
        group.add(pid)
        self._groups[state.name] = group
        return await agent.go(child)

    def _prune(self, state: ContainerState) -> None:
        """Keep the log of the last run alone: a container in a crash loop must not fill the disk."""
        for path in self.state_folder.glob(f"{state.name}.*"):
            number = path.name.removeprefix(f"{state.name}.").split(".")[0]
            if number.isdigit() and int(number) < state.restarts - 1:
                path.unlink()

    def group(self, name: str) -> Group | None:
        """The limits of a running container, for commands that join it."""
        return self._groups.get(name)

    async def left_over(self, agent: Agent | None, state: ContainerState) -> str:
        """What an earlier localkube left of this container: "nothing", "running" (or ended unseen), or "ended".

        The newest log file tells the number of its last start: it is there before the status can know.
        """
        logs = [path.name.rsplit(".", 2) for path in self.state_folder.glob(f"{state.name}.*.log")]
        numbers = [int(parts[1]) for parts in logs if parts[0] == state.name and parts[1].isdigit()]
        if not numbers:
            return "nothing"
        latest = max(numbers)
        told = state.terminated is not None and state.restarts >= latest
        state.restarts = max(state.restarts, latest)
        if told:
            return "ended"
        child = await self._child(agent, state) if agent else None
        if child and child["code"] is None:
            container = next(entry for entry in self._pod["spec"]["containers"] if entry["name"] == state.name)
            memory = parse((container.get("resources", {}).get("limits") or {}).get("memory", "0")).value
            name = f"{self.uid}-{state.name}"
            self._groups[state.name] = self._context.limits.adopt(name, memory=memory or None, pid=child["pid"])
        return "running"

    @staticmethod
    async def _child(agent: Agent, state: ContainerState) -> dict[str, Any] | None:
        wanted = f"{state.name}.{state.restarts}"
        status = await agent.status()
        return next((child for child in status["children"] if child["name"] == wanted), None)

    async def started(self, agent: Agent, state: ContainerState) -> str:
        """When a container found running was started."""
        child = await self._child(agent, state)
        return str(child["started"]) if child and child["started"] else state.running_since or now()

    async def wait(self, agent: Agent, state: ContainerState) -> dict[str, Any]:
        """How the container ended; from its record when the agent has gone, 137 when there is none."""
        child = f"{state.name}.{state.restarts}"
        with contextlib.suppress(AgentGone):
            try:
                return await agent.wait(child)
            except AgentError as error:
                if isinstance(error, AgentGone):
                    raise
        try:
            record: dict[str, Any] = json.loads(
                await asyncio.to_thread((self.state_folder / f"{child}.json").read_text)
            )
        except (OSError, ValueError):
            return {"code": 137, "started": state.running_since or "", "finished": now(), "orphaned": True}
        return record

    def oom_killed(self, state: ContainerState, code: int) -> bool:
        """Whether its program was killed for memory; one that outlived the end of a child was not."""
        group = self._groups.get(state.name)
        return code == 137 and group is not None and group.oom_killed()

    def free(self, state: ContainerState) -> None:
        """Release the limits of a container that has ended."""
        group = self._groups.pop(state.name, None)
        if group:
            group.remove()

    def last_words(self, state: ContainerState, container: Object, code: int) -> str:
        """The termination message: its file, or the end of the log after an error where the manifest says so."""
        try:
            text = (self.folder / "term" / state.name).read_bytes()[:4096].decode(errors="replace")
        except OSError:
            text = ""
        if text or code == 0 or container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return text
        return _log_tail(self.state_folder / f"{state.name}.{state.restarts}.log")


def _log_tail(path: Path) -> str:
    """The end of what a container printed: 80 lines and 2 KiB at most, the kubelet's numbers."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16384))
            stored = file.read().splitlines()[-80:]
    except OSError:
        return ""
    pieces = [parse_line(line) for line in stored]
    text = b"".join(piece + (b"\n" if whole else b"") for _, piece, whole in pieces)
    return text[-2048:].decode(errors="replace")


def _load_image(kept: dict[str, Any]) -> Image:
    paths = {key: Path(kept[key]) for key in ("venv", "python", "library_cache")}
    links = tuple((place, target) for place, target in kept.get("links", ()))
    editor = Path(kept["editor"]) if kept.get("editor") else None
    return Image(**{**kept, **paths, "command": tuple(kept["command"]), "links": links, "editor": editor})
