"""How answers look in a terminal: aligned columns for people, JSON for programs."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Aligned text with a head line; a missing value is a dash. A column ``a.b`` is the ``b`` of what is at ``a``."""
    lines = [[name.rpartition(".")[2].upper().replace("_", " ") for name in columns]]
    lines += [[_cell(_at(row, name)) for name in columns] for row in rows]
    widths = [max(_width(line[number]) for line in lines) for number in range(len(columns))]
    return "\n".join(
        "  ".join(text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def state(item: Mapping[str, Any]) -> str:
    """State, reason and next step, a line each."""
    reason = item.get("reason") or {}
    lines = [f"{item['name']}: {item['state']}", reason.get("sentence", ""), reason.get("next", "")]
    return "\n".join(line for line in lines if line)


def _at(row: Mapping[str, Any], name: str) -> Any:
    outer, dot, inner = name.partition(".")
    return (row.get(outer) or {}).get(inner) if dot else row.get(name)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, Mapping):
        return str(value.get("sentence") or "-")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
