"""A flow as people write it: the JSON body of REST, the YAML tab and the form are this one document.

``parse`` turns it into frozen values or raises ``Invalid`` with every fault and its place. Unknown fields are
refused. What an executor's node needs is read by the executor itself (``apps.flows.executors``).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext as _

from apps.core import egress, names, zones
from apps.flows import executors, schedule
from apps.flows.executors.base import NodeConfig
from apps.flows.masking import HIDDEN
from apps.flows.models import Misfire
from apps.flows.reading import Faults, Reader

MAX_SCHEDULES = 20
MAX_ALERTS = 20
MAX_RETRIES = 20
MAX_INTERVAL_S = 24 * 3600
MAX_TIMEOUT_S = 30 * 24 * 3600
DEFAULT_TIMEOUT_S = 24 * 3600
DEFAULT_INTERVAL_S = 30
EVENTS = ("failed", "timeout", "succeeded")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_BAD_URL = {
    "url_invalid": lambda: _("This is not a web address: it has a space in it, or a port that is none."),
    "url_scheme": lambda: _("An address that begins with http:// or https:// is expected."),
    "url_credentials": lambda: _("An address without a user name and password is expected: it is shown to others."),
}
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ScheduleDoc:
    """When to run: a cron expression of five fields in an IANA time zone."""

    cron: str
    timezone: str
    misfire: str = Misfire.LATEST.value
    enabled: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"cron": self.cron, "timezone": self.timezone, "misfire": self.misfire, "enabled": self.enabled}


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How many more attempts after a failure of the program, and how long to wait before each."""

    count: int = 0
    interval_s: int = DEFAULT_INTERVAL_S

    def as_json(self) -> dict[str, Any]:
        return {"count": self.count, "interval_s": self.interval_s}


@dataclass(frozen=True, kw_only=True)
class NodeDoc:
    """One step: what every executor has in common, and ``config``, which is the executor's own."""

    name: str
    executor: str
    config: NodeConfig
    needs: tuple[str, ...] = ()
    retries: Retries = Retries()
    timeout_s: int = DEFAULT_TIMEOUT_S

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "executor": self.executor,
            **self.config.as_json(),
            "needs": list(self.needs),
            "retries": self.retries.as_json(),
            "timeout_s": self.timeout_s,
        }


@dataclass(frozen=True, kw_only=True)
class AlertDoc:
    """Whom to tell of which ends: ``to`` addresses by mail, or a ``url`` by webhook.

    A run that ended by time-out is both ``timeout`` and ``failed``; it is told once.
    """

    on: tuple[str, ...]
    channel: str
    to: tuple[str, ...] = ()
    url: str = ""

    def as_json(self) -> dict[str, Any]:
        target: dict[str, Any] = {"to": list(self.to)} if self.channel == "mail" else {"url": self.url}
        return {"on": list(self.on), "channel": self.channel, **target}


@dataclass(frozen=True, kw_only=True)
class FlowDoc:
    """A whole flow. ``queue`` is a name or an id until the service resolves it."""

    name: str
    queue: str
    schedules: tuple[ScheduleDoc, ...]
    nodes: tuple[NodeDoc, ...]
    alerts: tuple[AlertDoc, ...]

    def as_json(self) -> dict[str, Any]:
        """The document in full, with all defaults written out."""
        return {
            "name": self.name,
            "queue": self.queue,
            "schedules": [entry.as_json() for entry in self.schedules],
            "nodes": [entry.as_json() for entry in self.nodes],
            "alerts": [entry.as_json() for entry in self.alerts],
        }

    def node(self, name: str) -> NodeDoc:
        """The node of this name; raises ``KeyError``."""
        return {node.name: node for node in self.nodes}[name]


def parse(data: Any) -> FlowDoc:
    """Read a document. Raises ``Invalid`` with all faults; nothing here asks the database."""
    faults = Faults()
    reader = Reader(data, "", faults, known=("name", "queue", "schedules", "nodes", "alerts"))
    name = unicodedata.normalize("NFC", reader.text("name"))
    if name and not names.is_name(name):
        reader.fault("name", str(names.RULE), code="name_invalid")
    queue = reader.text("queue", limit=100)
    schedules = reader.each("schedules", lambda entry, place: _schedule(entry, place, faults), most=MAX_SCHEDULES)
    nodes = reader.each("nodes", lambda entry, place: _node(entry, place, faults), most=200)
    if len(nodes) > 1:
        reader.fault("nodes", _("Flows of several nodes are not possible yet: give one."), code="one_node_only")
    elif not nodes:
        reader.fault("nodes", _("One node is needed."))
    alerts = reader.each("alerts", lambda entry, place: _alert(entry, place, faults), most=MAX_ALERTS)
    faults.check()
    return FlowDoc(name=name, queue=queue, schedules=schedules, nodes=nodes, alerts=alerts)


def stored(data: Any) -> FlowDoc:
    """A document that was parsed before, from a version's row."""
    return parse(data)


def parse_parameters(data: Any) -> dict[str, str]:
    """A run's parameters: texts by name. Raises ``Invalid``."""
    faults = Faults()
    found = Reader({"parameters": data or {}}, "", faults, known=("parameters",)).mapping("parameters", most=50)
    for name, value in found.items():
        if not _PARAMETER.fullmatch(name):
            text = _("A name is made of letters, digits and “_” and does not begin with a digit.")
            faults.add(f"parameters.{name}", text)
        if len(value) > 4096 or "\0" in value:
            faults.add(f"parameters.{name}", _("At most %(max)d characters are possible.") % {"max": 4096})
    faults.check()
    return found


def _schedule(data: Any, place: str, faults: Faults) -> ScheduleDoc:
    reader = Reader(data, place, faults, known=("cron", "timezone", "misfire", "enabled"))
    cron, zone = reader.text("cron", limit=schedule.MAX_LENGTH), reader.text("timezone", default="UTC", limit=64)
    if zone and not zones.is_zone(zone):
        reader.fault("timezone", _("There is no time zone “%(zone)s”.") % {"zone": zone}, code="timezone_unknown")
    elif cron.strip():
        try:
            schedule.check(cron)
        except schedule.BadCron as error:
            reader.fault("cron", error.sentence, code=error.code)
    return ScheduleDoc(
        cron=" ".join(cron.split()),
        timezone=zone,
        misfire=reader.one_of("misfire", Misfire.values, default=Misfire.LATEST.value),
        enabled=reader.flag("enabled", default=True),
    )


def _node(data: Any, place: str, faults: Faults) -> NodeDoc:
    kind = data.get("executor", "container") if isinstance(data, dict) else "container"
    executor = executors.find(kind)
    common = ("name", "executor", "needs", "retries", "timeout_s")
    reader = Reader(data, place, faults, known=(*common, *(executor or executors.find("container")).fields))
    if executor is None:
        names_known = ", ".join(executors.names())
        reader.fault("executor", _("One of these is expected: %(names)s.") % {"names": names_known})
        executor = executors.find("container")
    name = reader.text("name", default="main", limit=63)
    if name and not _NODE_NAME.fullmatch(name):
        reader.fault("name", _("Use small letters, digits and “-”; at most 63."))
    needs = reader.texts("needs")
    if needs:
        reader.fault("needs", _("Flows of several nodes are not possible yet: leave this empty."), code="one_node_only")
    timeout_s = reader.number("timeout_s", default=DEFAULT_TIMEOUT_S, low=1, high=MAX_TIMEOUT_S)
    return NodeDoc(
        name=name,
        executor=executor.name,
        config=executor.read(reader),
        needs=needs,
        retries=_retries(reader.data.get("retries") or {}, reader.at("retries"), faults),
        timeout_s=timeout_s or DEFAULT_TIMEOUT_S,
    )


def _retries(data: Any, place: str, faults: Faults) -> Retries:
    reader = Reader(data, place, faults, known=("count", "interval_s"))
    interval_s = reader.number("interval_s", default=DEFAULT_INTERVAL_S, low=0, high=MAX_INTERVAL_S)
    return Retries(
        count=reader.number("count", default=0, low=0, high=MAX_RETRIES) or 0,
        interval_s=DEFAULT_INTERVAL_S if interval_s is None else interval_s,
    )


def _alert(data: Any, place: str, faults: Faults) -> AlertDoc:
    channel = data.get("channel") if isinstance(data, dict) else None
    target = "url" if channel == "webhook" else "to"
    reader = Reader(data, place, faults, known=("on", "channel", target))
    on = reader.texts("on") if "on" in reader.data else ("failed", "timeout")
    if not on or any(event not in EVENTS for event in on):
        reader.fault("on", _("A list of these is expected: %(names)s.") % {"names": ", ".join(EVENTS)})
    reader.one_of("channel", ("mail", "webhook"))
    to: tuple[str, ...] = ()
    url = ""
    if channel == "webhook":
        url = reader.text("url", limit=2000)
        if url.endswith(f"/{HIDDEN}"):
            reader.fault("url", _("This address was hidden from you: type the whole of it."))
        elif url:
            try:
                egress.parse(url)
            except egress.EgressRefused as refused:
                reader.fault("url", _BAD_URL[refused.code]())
    else:
        raw = reader.data.get("to")
        to = (raw,) if isinstance(raw, str) else reader.texts("to", most=20)
        if not to:
            reader.fault("to", _("A mail address is needed."))
        for address in to:
            try:
                validate_email(address)
            except ValidationError:
                reader.fault("to", _("“%(address)s” is not a mail address.") % {"address": address})
    return AlertDoc(on=tuple(dict.fromkeys(on)), channel=channel or "", to=to, url=url)
