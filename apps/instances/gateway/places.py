"""What the gateway knows of the instances: which host is which launch, and what is open to it. Pure memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from apps.instances.gateway import pages
from kubekit import names

if TYPE_CHECKING:
    from apps.instances.gateway.upstreams import Upstream
    from apps.instances.gateway.visitors import Visitor

#: Where JupyterLab listens, with the instance's own check before everything.
LAB_PORT: Final = 8888
#: Requests and web sockets of one instance at the same time.
MOST_OPEN: Final = 2000
#: Connections to one port of an instance that are kept for the next request.
MOST_IDLE: Final = 64

_HOST: Final = re.compile(rb"(?:p([1-9][0-9]{0,4})--)?(i-[0-9a-f]{32})\.([a-z0-9.-]{1,200}?)(?::[0-9]{1,5})?")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of one instance as its row has it. Two that are equal are the same program in the same pod."""

    instance_id: UUID
    cluster_id: UUID
    namespace: str
    name: str
    pod_uid: str
    number: int
    state: str
    host: str
    scheme: str

    @property
    def pod(self) -> str:
        """The one pod of its StatefulSet."""
        return names.instance_pod_name(self.name, self.instance_id)


@dataclass(eq=False)
class Place:
    """A launch, and everything that is open to it."""

    launch: Launch
    is_open: bool
    starts: bool
    forwarded: bytes = b""
    busy: set[Visitor] = field(default_factory=set)
    idle: dict[int, list[Upstream]] = field(default_factory=dict)
    ports: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Open ports, with the ids of the people who may use each, and until when (seconds since 1970)."""

    def admits(self, port: int, person: str, now: float) -> bool:
        """Whether this person may use this port."""
        return self.ports.get(port, {}).get(person, 0.0) > now

    def show_out(self, now: float) -> None:
        """End what is open to people who may no longer use the port that they are at (failure F45)."""
        for visitor in list(self.busy):
            request = visitor.current
            door = request.door if request is not None else None
            if (
                request is not None
                and door is not None
                and door.checked
                and not self.admits(door.port, request.person, now)
            ):
                visitor.cut()

    def cut(self) -> None:
        """The launch is over: end what is open to it, at once."""
        self.is_open = False
        for upstreams in self.idle.values():
            for upstream in list(upstreams):
                upstream.drop()
        self.idle.clear()
        for visitor in list(self.busy):
            visitor.cut()


@dataclass(frozen=True, slots=True)
class Door:
    """A port of a place."""

    place: Place
    port: int
    checked: bool
    """Whether the gateway itself asks who it is, because what listens there does not."""


class Places:
    """All of them, by host. A host that is not spelt exactly so leads nowhere (failure F42)."""

    def __init__(self, *, open_states: Iterable[str], starting_states: Iterable[str]) -> None:
        self._open, self._starting = frozenset(open_states), frozenset(starting_states)
        self._by_host: dict[bytes, Place] = {}
        self._by_id: dict[UUID, Place] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._by_id.values()))

    def replace(self, launches: Iterable[Launch]) -> None:
        """These are all there are."""
        wanted = {launch.instance_id: launch for launch in launches}
        for pk in self._by_id.keys() - wanted.keys():
            self.forget(pk)
        for launch in wanted.values():
            self.put(launch)

    def put(self, launch: Launch) -> None:
        """What the row says now; connections of another launch, and of one that was told to end, are cut."""
        known = self._by_id.get(launch.instance_id)
        if known is not None:
            if known.launch == launch:
                return
            if self._goes_on(known.launch, launch):
                known.launch = launch
                return
            self.forget(launch.instance_id)
        place = Place(launch=launch, is_open=launch.state in self._open, starts=launch.state in self._starting)
        place.forwarded = f"X-Forwarded-Proto: {launch.scheme}\r\nX-Forwarded-Host: ".encode()
        self._by_id[launch.instance_id] = place
        self._by_host[launch.host.encode()] = place

    def open_ports(self, ports: Mapping[UUID, Mapping[int, Mapping[str, float]]], now: float) -> None:
        """These are all the open ports of all places, with their people."""
        for pk, place in self._by_id.items():
            place.ports = ports.get(pk, {})
            place.show_out(now)

    def open_some(self, ports: Mapping[UUID, Mapping[int, Mapping[str, float]]]) -> None:
        """The open ports of some places that have just come."""
        for pk, found in ports.items():
            if pk in self._by_id:
                self._by_id[pk].ports = found

    def _goes_on(self, before: Launch, after: Launch) -> bool:
        """Whether the same pod is as reachable as it was."""
        same = before.number == after.number and before.pod_uid == after.pod_uid and before.host == after.host
        return same and before.state in self._open and after.state in self._open and before.scheme == after.scheme

    def forget(self, instance_id: UUID) -> None:
        """It is not to be reached here."""
        place = self._by_id.pop(instance_id, None)
        if place is not None:
            self._by_host.pop(place.launch.host.encode(), None)
            place.cut()

    def at(self, host: bytes) -> Door | pages.Said:
        """The door that a field `Host` names, or what to say instead."""
        found = _HOST.fullmatch(host) or _HOST.fullmatch(host.lower())
        if found is None:
            return pages.NOTHING_RUNS
        port, label, domain = found.groups()
        place = self._by_host.get(label + b"." + domain)
        if place is None or not (place.is_open or place.starts):
            return pages.NOTHING_RUNS
        if not place.is_open:
            return pages.STARTS
        if len(place.busy) >= MOST_OPEN:
            return pages.TOO_MANY
        if port is None:
            return Door(place, LAB_PORT, checked=False)
        number = int(port)
        return Door(place, number, checked=True) if number in place.ports else pages.NOTHING_RUNS
