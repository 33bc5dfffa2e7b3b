"""Quantities ("500m", "1Gi"): parsed to exact integers and printed in the API server's canonical form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache, total_ordering
from typing import Any, Final

from localkube.status import ApiError

_NANO: Final = 10**9
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": 1, "u": 10**3, "m": 10**6, "": 10**9, "k": 10**12, "M": 10**15, "G": 10**18, "T": 10**21}
_DECIMAL_LARGE: Final = {"P": 10**24, "E": 10**27}
_PATTERN: Final = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """Text that is no quantity; the message is the real server's."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount in billionths, and whether it prints with binary suffixes."""

    nano: int = 0
    binary: bool = False

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, self.binary if self.nano else other.binary)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.binary if self.nano else other.binary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __bool__(self) -> bool:
        return self.nano != 0

    @property
    def whole(self) -> bool:
        return self.nano % _NANO == 0

    @property
    def value(self) -> int:
        """The amount in units, rounded up (bytes, cores, pieces)."""
        return -(-self.nano // _NANO)

    def __str__(self) -> str:
        if not self.nano:
            return "0"
        if self.binary and self.whole and abs(self.nano) >= 1024 * _NANO:
            units = self.nano // _NANO
            for suffix, size in reversed(_BINARY.items()):
                if units % size == 0:
                    return f"{units // size}{suffix}"
            return str(units)
        for suffix, size in reversed((_DECIMAL | _DECIMAL_LARGE).items()):
            if self.nano % size == 0:
                return f"{self.nano // size}{suffix}"
        return f"{self.nano}n"


ZERO: Final = Quantity()


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    found = _PATTERN.match(text)
    if not found:
        raise QuantityError(_TEXT)
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        scaled, binary = number * _BINARY[suffix] * _NANO, True
    elif suffix in _DECIMAL:
        scaled, binary = number * _DECIMAL[suffix], False
    elif suffix in _DECIMAL_LARGE:
        scaled, binary = number * _DECIMAL_LARGE[suffix], False
    else:
        scaled, binary = number.scaleb(int(suffix[1:])) * _NANO, False
    return Quantity(int(scaled.to_integral_value(rounding=ROUND_CEILING)), binary)


def parse(value: Any) -> Quantity:
    """A quantity of a manifest (text or number). Raises QuantityError."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise QuantityError(_TEXT)
    return _parse_text(str(value))


def canonical(values: dict[str, Any], kind: str) -> dict[str, str]:
    """A resource list as the server stores it. Raises ApiError 400 with the real decoder's text."""
    try:
        return {name: str(parse(value)) for name, value in values.items()}
    except QuantityError as error:
        raise ApiError(400, f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
