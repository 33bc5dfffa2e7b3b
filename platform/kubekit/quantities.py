"""Kubernetes quantities as exact integers: CPU in millicores, memory and storage in bytes.

The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``: a signed decimal number, then either a binary suffix
(Ki..Ei), a decimal SI suffix (n, u, m, "", k..E) or a decimal exponent (e3, E-3). Where a value does not fit the unit
it is rounded **up**, as the server does ("0.1m" of CPU counts as 1m), and values beyond 2^63-1 are cut to that.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

from .errors import SpecError

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]{1,3}|[numkMGTPE]?)",
    re.ASCII,
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MAX_LENGTH = 64
_MAX = 2**63 - 1


def parse(text: str | int | float) -> Fraction:
    """The exact value of a quantity; raises `SpecError` ``bad_quantity`` for anything the server would refuse."""
    shown = str(text)
    found = _QUANTITY.fullmatch(shown) if len(shown) <= _MAX_LENGTH else None
    if found is None:
        raise SpecError("bad_quantity", "quantity", f"{shown[:_MAX_LENGTH]!r} is not a quantity such as 500m or 2Gi")
    value = Fraction(Decimal(found["number"]))
    suffix = found["suffix"]
    if suffix in _BINARY:
        value *= 1024 ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        value *= Fraction(10) ** _DECIMAL[suffix]
    else:
        value *= Fraction(10) ** int(suffix[1:])
    value = min(value, Fraction(_MAX))
    return -value if found["sign"] == "-" else value


def _ceiling(value: Fraction) -> int:
    return max(-_MAX, min(_MAX, math.ceil(value)))


def parse_cpu(text: str | int | float) -> int:
    """CPU as millicores: "0.5" -> 500, "250m" -> 250, "2" -> 2000."""
    return _ceiling(parse(text) * 1000)


def parse_bytes(text: str | int | float) -> int:
    """Memory or storage as bytes: "1Gi" -> 1073741824, "1G" -> 1000000000, "128974848" -> itself."""
    return _ceiling(parse(text))


def parse_count(text: str | int | float) -> int:
    """A countable resource (GPUs, pods, claims): "8" -> 8, "1k" -> 1000."""
    return _ceiling(parse(text))


def format_cpu(millis: int) -> str:
    """The server's canonical form: 500 -> "500m", 2000 -> "2"."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def format_bytes(count: int) -> str:
    """The largest binary suffix that divides exactly: 1073741824 -> "1Gi", 1000 -> "1000"."""
    for suffix, power in reversed(_BINARY.items()):
        unit = 1024**power
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)


def scale(value: int, ratio: Decimal | int | float) -> int:
    """``value * ratio`` rounded up to a whole unit, without the noise of binary floats (1.1 means 1.1)."""
    return int((Decimal(value) * Decimal(str(ratio))).to_integral_value(rounding=ROUND_CEILING))
