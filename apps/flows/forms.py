"""The form of a flow and the document behind it: what the form does not show is kept as it was."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog.models import Image, Size
from apps.core import quantities, zones
from apps.flows import schedule
from apps.flows.document import DEFAULT_INTERVAL_S
from apps.flows.models import Misfire
from apps.storage.models import Volume
from apps.tenants.models import Queue

SHELL = ("/bin/sh", "-c")
_SHELL_SIGNS = frozenset("|&;<>()$`\\\"'*?[]#~=%!{}\n")
NO_TIMES = ""
PRESETS: Sequence[tuple[str, Any]] = (
    (NO_TIMES, gettext_lazy("not by the clock")),
    ("* * * * *", gettext_lazy("every minute")),
    ("0 * * * *", gettext_lazy("every hour")),
    ("0 2 * * *", gettext_lazy("every night at 2")),
    ("0 8 * * 1-5", gettext_lazy("on working days at 8")),
    ("0 3 * * 0", gettext_lazy("on Sundays at 3")),
    ("0 4 1 * *", gettext_lazy("on the first of the month at 4")),
    ("custom", gettext_lazy("my own times")),
)
FORM_DEFAULT_TIMEOUT_S = 3600


class FlowForm(forms.Form):
    """Choices are names, as in the document."""

    more: tuple[str, ...] = (
        "volume", "path", "read_only", "workdir", "retries", "interval_s", "misfire", "mail", "webhook",
    )  # fmt: skip

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=63, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    image = forms.ChoiceField(label=gettext_lazy("Image"))
    size = forms.ChoiceField(label=gettext_lazy("Size"))
    queue = forms.ChoiceField(label=gettext_lazy("Queue"))
    command = forms.CharField(
        label=gettext_lazy("Command"),
        help_text=gettext_lazy("Runs in the image; a shell reads it when it contains pipes, quotes or variables."),
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false", "autocomplete": "off"}),
    )
    preset = forms.ChoiceField(label=gettext_lazy("When"), choices=PRESETS, required=False)
    cron = forms.CharField(
        label=gettext_lazy("Cron expression"),
        required=False,
        max_length=schedule.MAX_LENGTH,
        help_text=gettext_lazy("Minute, hour, day of the month, month, day of the week."),
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    timezone = forms.ChoiceField(label=gettext_lazy("Time zone"), required=False)
    timeout_s = forms.IntegerField(
        label=gettext_lazy("Time-out (seconds)"), min_value=1, initial=FORM_DEFAULT_TIMEOUT_S
    )
    workdir = forms.CharField(
        label=gettext_lazy("Working folder"),
        required=False,
        widget=forms.TextInput(attrs={"placeholder": "/root", "autocomplete": "off", "spellcheck": "false"}),
    )
    volume = forms.ChoiceField(label=gettext_lazy("Volume"), required=False)
    path = forms.CharField(
        label=gettext_lazy("Mounted at"),
        required=False,
        help_text=gettext_lazy("Left empty, a home is mounted at /root and data at /mnt/<name>."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    read_only = forms.BooleanField(label=gettext_lazy("Read only"), required=False)
    retries = forms.IntegerField(label=gettext_lazy("Retries after a failure"), min_value=0, required=False, initial=0)
    interval_s = forms.IntegerField(
        label=gettext_lazy("Seconds before a retry"), min_value=0, required=False, initial=DEFAULT_INTERVAL_S
    )
    misfire = forms.ChoiceField(
        label=gettext_lazy("After downtime"), choices=Misfire.choices, required=False, initial=Misfire.LATEST
    )
    mail = forms.CharField(
        label=gettext_lazy("Alarm by mail"),
        required=False,
        help_text=gettext_lazy("Addresses that hear of a failure or a time-out, separated by commas."),
    )
    webhook = forms.CharField(
        label=gettext_lazy("Alarm by webhook"),
        required=False,
        help_text=gettext_lazy("An address that is called on a failure or a time-out, signed."),
        widget=forms.TextInput(attrs={"placeholder": "https://", "autocomplete": "off"}),
    )

    def __init__(
        self,
        *args: Any,
        images: Sequence[Image],
        sizes: Sequence[Size],
        queues: Sequence[Queue],
        volumes: Sequence[Volume],
        fixed_queue: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.initial.get("volume") or self.initial.get("workdir"):
            # What an instance handed over is shown, not folded away.
            self.more = tuple(name for name in type(self).more if name not in {"volume", "path", "workdir"})
        homes = [(str(row.pk), f"{row.queue.name}/{row.name}") for row in volumes]
        self._offer("image", [(row.name, _labelled(row.name, row.description)) for row in images])
        self._offer("size", [(row.name, size_label(row)) for row in sizes])
        self._offer("queue", [(row.name, row.name) for row in queues])
        self._offer("volume", [("", _("none")), *homes])
        self._offer("timezone", [(zone, zone) for zone in zones.zones()])
        if fixed_queue:
            self.fields["queue"].help_text = _("A flow stays in its queue.")

    def _offer(self, name: str, rows: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        # What a flow has stays choosable after it was retired.
        chosen = self.initial.get(name)
        if chosen and chosen not in [value for value, _label in rows]:
            rows = [(chosen, chosen), *rows]
        field.choices = rows


def size_label(size: Size) -> str:
    """``small: 0.5 CPU, 1 GiB``."""
    parts = [quantities.cpus(size.cpu_millis), quantities.size(size.memory_bytes)]
    if size.gpus:
        parts.append(_("%(count)d GPU") % {"count": size.gpus})
    return _labelled(size.name, ", ".join(parts))


def _labelled(name: str, text: str) -> str:
    return f"{name}: {text}" if text else name


def command_of(text: str) -> list[str]:
    """A typed command line as words: plain words as they are, anything that a shell must read through one."""
    text = text.strip().replace("\r\n", "\n")
    if not text:
        return []
    if _SHELL_SIGNS.isdisjoint(text):
        return text.split()
    return [*SHELL, text]


def text_of(command: Sequence[str]) -> str:
    """The reverse of ``command_of``."""
    if tuple(command[:2]) == SHELL and len(command) == 3:
        return command[2]
    return shlex.join(command)


def command_line(node: Mapping[str, Any]) -> str:
    """Command and arguments as one would type them."""
    return " ".join(filter(None, (text_of(node["command"]), shlex.join(node["args"]))))


def to_document(data: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document that the form means; parts of ``base`` that the form does not show are kept."""
    found: dict[str, Any] = copy.deepcopy(dict(base)) if base else {"nodes": [{}], "schedules": [], "alerts": []}
    node = found["nodes"][0]
    found |= {"name": data.get("name", ""), "queue": data.get("queue", "")}
    node |= {
        "name": node.get("name", "main"),
        "executor": "container",
        "image": data.get("image", ""),
        "size": data.get("size", ""),
        "command": command_of(data.get("command", "")),
        "retries": {
            "count": _number(data.get("retries"), 0),
            "interval_s": _number(data.get("interval_s"), DEFAULT_INTERVAL_S),
        },
        "timeout_s": _number(data.get("timeout_s"), FORM_DEFAULT_TIMEOUT_S),
        "working_dir": data.get("workdir", "").strip(),
    }
    volumes = list(node.get("volumes", []))[1:]
    if data.get("volume"):
        first = {"volume": data["volume"], "read_only": bool(data.get("read_only"))}
        path = data.get("path", "").strip()
        volumes.insert(0, {**first, "path": path} if path else first)
    node["volumes"] = volumes
    rest = list(found.get("schedules", []))[1:]
    if data.get("cron", "").strip():
        line = {
            "cron": data["cron"].strip(),
            "timezone": data.get("timezone") or "UTC",
            "misfire": data.get("misfire") or Misfire.LATEST.value,
        }
        rest.insert(0, line)
    found["schedules"] = rest
    found["alerts"] = _alerts(data, found.get("alerts", []))
    return found


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _alerts(data: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first of each channel is the form's; its events are kept."""
    found: list[dict[str, Any]] = []
    for channel, target in (("mail", _addresses(data.get("mail", ""))), ("webhook", data.get("webhook", "").strip())):
        mine = [dict(rule) for rule in before if rule["channel"] == channel]
        on = mine[0]["on"] if mine else ["failed", "timeout"]
        if target:
            found.append({"on": on, "channel": channel, ("to" if channel == "mail" else "url"): target})
        found += mine[1:]
    return found


def _addresses(text: str) -> list[str]:
    return [part.strip() for part in text.replace(";", ",").split(",") if part.strip()]


def from_document(document: Mapping[str, Any], volume_ids: Sequence[str]) -> dict[str, Any]:
    """The form's values for a flow that exists."""
    node = document["nodes"][0]
    line = document["schedules"][0] if document["schedules"] else {}
    volume = node["volumes"][0] if node["volumes"] else {}
    mails = [rule for rule in document["alerts"] if rule["channel"] == "mail"]
    hooks = [rule for rule in document["alerts"] if rule["channel"] == "webhook"]
    return {
        "name": document["name"],
        "queue": document["queue"],
        "image": node["image"],
        "size": node["size"],
        "command": text_of(node["command"]),
        "workdir": node["working_dir"],
        "volume": volume_ids[0] if volume_ids else "",
        "path": volume.get("path", ""),
        "read_only": volume.get("read_only", False),
        "preset": preset_of(line.get("cron", "")),
        "cron": line.get("cron", ""),
        "timezone": line.get("timezone", "UTC"),
        "misfire": line.get("misfire", Misfire.LATEST.value),
        "retries": node["retries"]["count"],
        "interval_s": node["retries"]["interval_s"],
        "timeout_s": node["timeout_s"],
        "mail": ", ".join(mails[0]["to"]) if mails else "",
        "webhook": hooks[0]["url"] if hooks else "",
    }


def preset_of(cron: str) -> str:
    """The preset that this expression is, else ``custom``."""
    return cron if any(cron == value for value, _label in PRESETS) else "custom"


def field_of(pointer: str, document: Mapping[str, Any]) -> str:
    """The form's field for a place in the document; empty when the form does not show it."""
    if pointer.startswith("alerts."):
        number = int(pointer.split(".")[1])
        return str(document["alerts"][number]["channel"])
    if pointer.startswith("nodes.0.volumes"):
        return "path" if pointer.endswith(".path") else "volume"
    return {
        "name": "name",
        "queue": "queue",
        "nodes.0.image": "image",
        "nodes.0.size": "size",
        "nodes.0.command": "command",
        "nodes.0.working_dir": "workdir",
        "nodes.0.retries.count": "retries",
        "nodes.0.retries.interval_s": "interval_s",
        "nodes.0.timeout_s": "timeout_s",
        "schedules.0.cron": "cron",
        "schedules.0.timezone": "timezone",
        "schedules.0.misfire": "misfire",
    }.get(pointer, "")
