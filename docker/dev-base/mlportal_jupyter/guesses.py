"""How many wrong keys an address may send: a bound on work and log, never on the owner.

A key has 256 bits, so guessing finds nothing at any rate. What a flood of guesses costs is the instance's own time,
and that is what is bounded here. The right key, cookie or ticket enters from any address at any time: an owner behind
the same proxy as the guesser, or whose own forgotten script still sends last week's key, is never locked out.

Only the standard library, as in `tickets`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FREE = 20
"""Wrong tries that are answered in full before an address is only told to wait."""
PER_S = 0.2
"""Tries that an address wins back each second."""
MOST = 4096
"""Addresses kept in mind; beyond that those are forgotten that were heard longest ago."""


class Guesses:
    """Wrong tries by address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def wrong(self, address: str) -> float:
        """Count a wrong try. 0 when it is to be answered in full, else the seconds after which one would be."""
        now = self._clock()
        left, at = self._left.pop(address, (float(FREE), now))
        left = min(float(FREE), left + (now - at) * PER_S)
        over = left < 1
        self._left[address] = (left if over else left - 1, now)
        if len(self._left) > MOST:
            del self._left[next(iter(self._left))]
        return (1 - left) / PER_S if over else 0.0
