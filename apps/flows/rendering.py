"""What pages show of flows and runs besides their columns: YAML, plain text out of logs, the form's panel."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from django.conf import settings
from django.utils import timezone

from apps.core.errors import Conflict, Invalid
from apps.flows import forecast, logs, pods
from apps.flows.document import parse
from apps.flows.forms import to_document
from apps.flows.models import Attempt
from kubekit.build.task import task_pod
from kubekit.errors import SpecError

PAGE_LOG_BYTES = 256 * 1024
#: CSI, OSC (titles, links) and two-byte escapes; what is left of ESC and other control characters goes too.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain(text: str) -> str:
    """A log as text: no colours, no cursor tricks; of a line that was overwritten (progress bars) the last state."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


def log_part(attempt: Attempt, offset: int) -> dict[str, Any]:
    """A piece of the log for the page, ending at a whole line so that no character is cut."""
    piece = logs.read(attempt, offset, limit=PAGE_LOG_BYTES)
    data = piece.data
    if not piece.complete:
        data = data[: data.rfind(b"\n") + 1] or (data if len(data) == PAGE_LOG_BYTES else b"")
    end = offset + len(data)
    return {
        "attempt": attempt,
        "text": plain(data.decode("utf-8", "replace")),
        "next": end,
        "complete": piece.complete and end >= attempt.log_bytes,
        "more": end < attempt.log_bytes,
    }


def dump(value: Any) -> str:
    """YAML in the order of the document."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False))


class _Dumper(yaml.SafeDumper):
    """Without anchors, with blocks for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _block)


def pod_yaml(attempt: Attempt) -> str:
    """The pod of an attempt as the portal makes it."""
    try:
        _node, _resolved, spec = pods.current(attempt)
        return dump(task_pod(spec))
    except (SpecError, Conflict) as error:
        return f"# {error}\n"


def panel(chosen: Mapping[str, Any], offered: Mapping[str, Sequence[Any]], base: Any = None) -> dict[str, Any]:
    """The form's side panel for what is typed so far; nothing of it is stored."""
    queue = next((row for row in offered["queues"] if row.name == chosen.get("queue")), None)
    size = next((row for row in offered["sizes"] if row.name == chosen.get("size")), None)
    found: dict[str, Any] = {"forecast": forecast.will_it_run(queue, size) if queue and size else None}
    zone = chosen.get("timezone") or "UTC"
    if str(chosen.get("cron") or "").strip():
        try:
            found["fires"] = forecast.fires_of(str(chosen["cron"]), zone, timezone.now())
        except Invalid as error:
            found["cron_error"] = error.detail
    found["zone"] = zone
    typed = {name: _whole(value) for name, value in chosen.items()}
    document = to_document(typed, base)
    names = {str(row.pk): row.name for row in offered["volumes"]}
    for mounted in document["nodes"][0]["volumes"]:
        mounted["volume"] = names.get(mounted["volume"], mounted["volume"])
    with contextlib.suppress(Invalid):  # what is not finished yet is shown as typed
        document = parse(document).as_json()
    return {**found, **same_by(document)}


def same_by(document: Mapping[str, Any]) -> dict[str, str]:
    """The same by command line, by REST and as YAML."""
    body = json.dumps(document, ensure_ascii=False, indent=2)
    rest = (
        f"curl -X POST {settings.PORTAL_ORIGIN}/api/v1/flows \\\n"
        f'  -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\\n'
        f"  -d @- <<'EOF'\n{body}\nEOF"
    )
    return {"cli": "portalctl flow create -f flow.yaml", "rest": rest, "yaml": dump(document)}


def _whole(value: Any) -> Any:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else value
