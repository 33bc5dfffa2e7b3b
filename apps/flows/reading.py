"""Reading JSON that people wrote: every fault is noted with its place, then all are told at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from apps.core.errors import Invalid

T = TypeVar("T")
MAX_TEXT = 8192


class Faults:
    """Faults by place; a place is a path such as ``nodes.0.timeout_s`` (a JSON pointer in the API's answer)."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.code = ""

    def add(self, place: str, text: str, *, code: str = "") -> None:
        """Note a fault; the first one at a place stays, the first ``code`` becomes the error's."""
        self.found.setdefault(place, text)
        self.code = self.code or code

    def check(self) -> None:
        """Raise ``Invalid`` when anything was found. Its code is the special one of the first fault that has one."""
        if not self.found:
            return
        place, text = next(iter(self.found.items()))
        raise Invalid(
            _("The flow is not valid: %(place)s: %(text)s") % {"place": place or "/", "text": text},
            code=self.code or "flow_invalid",
            next=_("Correct the fields named in “errors” and send the flow again."),
            errors=self.found,
        )


class Reader:
    """One JSON object at a place. Each getter notes a fault and answers a harmless value instead of raising."""

    def __init__(self, data: Any, place: str, faults: Faults, *, known: Collection[str]) -> None:
        self.place, self.faults = place, faults
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            faults.add(place, _("An object {…} is expected."))
        for key in self.data:
            if key not in known:
                text = _("This field is not known. Known here: %(names)s.") % {"names": ", ".join(sorted(known))}
                faults.add(self.at(str(key)), text, code="unknown_field")

    def at(self, key: str) -> str:
        """The place of a field."""
        return f"{self.place}.{key}" if self.place else key

    def fault(self, key: str, text: str, *, code: str = "") -> None:
        """Note a fault of a field."""
        self.faults.add(self.at(key), text, code=code)

    def text(self, key: str, *, default: str | None = None, limit: int = MAX_TEXT) -> str:
        """A non-empty text; needed unless there is a default."""
        value = self.data.get(key, default)
        if value is None:
            self.fault(key, _("This field is needed."))
            return ""
        if not isinstance(value, str) or "\0" in value:
            self.fault(key, _("A text is expected."))
            return ""
        if key in self.data and not value.strip():
            self.fault(key, _("This must not be empty."))
        if len(value) > limit:
            self.fault(key, _("At most %(max)d characters are possible.") % {"max": limit})
        return value

    def number(self, key: str, *, default: int | None, low: int, high: int) -> int | None:
        """A whole number within bounds, or the default."""
        value = self.data.get(key, default)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            bounds = {"low": low, "high": high}
            self.fault(key, _("A whole number from %(low)d to %(high)d is expected.") % bounds)
            return default
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            self.fault(key, _("true or false is expected."))
            return default
        return value

    def one_of(self, key: str, values: Collection[str], *, default: str | None = None) -> str:
        """One of some words."""
        value = self.data.get(key, default)
        if value not in values:
            self.fault(key, _("One of these is expected: %(names)s.") % {"names": ", ".join(values)})
            return default or ""
        return str(value)

    def texts(self, key: str, *, most: int = 200) -> tuple[str, ...]:
        """A list of texts; absent is empty."""
        value = self.data.get(key, [])
        good = isinstance(value, list) and all(isinstance(part, str) and "\0" not in part for part in value)
        if not good or len(value) > most:
            self.fault(key, _("A list of at most %(max)d texts is expected.") % {"max": most})
            return ()
        return tuple(value)

    def mapping(self, key: str, *, most: int = 200) -> dict[str, str]:
        """An object of texts; absent is empty."""
        value = self.data.get(key, {})
        good = isinstance(value, Mapping) and all(isinstance(part, str) for part in value.values())
        if not good or len(value) > most:
            self.fault(key, _("An object of at most %(max)d texts is expected.") % {"max": most})
            return {}
        return dict(value)

    def each(self, key: str, read: Callable[[Any, str], T], *, most: int) -> tuple[T, ...]:
        """A list, each entry read by ``read(entry, place)``; absent is empty."""
        value = self.data.get(key, [])
        if not isinstance(value, list) or len(value) > most:
            self.fault(key, _("A list of at most %(max)d entries is expected.") % {"max": most})
            return ()
        return tuple(read(entry, f"{self.at(key)}.{position}") for position, entry in enumerate(value))
