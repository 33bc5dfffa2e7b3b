"""What happens to the requests about one real life: drawn from its number, through the fault proxy."""

from __future__ import annotations

import random
import threading

from tests.faults.proxy import Fault, Seen

#: So many faults a life meets at most, and with what chance a request that concerns it meets one.
MOST_FAULTS, CHANCE = 10, 0.4
HELD_S = 3.0
#: (kind of the proxy's fault, status, reason); of writes, what may have been carried out or not.
WRITES = (
    ("drop", 0, ""), ("drop", 0, ""), ("reset", 0, ""), ("hold-answer", 0, ""), ("hold", 0, ""),
    ("answer", 409, "Conflict"), ("answer", 429, "TooManyRequests"), ("answer", 500, "InternalError"),
    ("answer-after", 500, "InternalError"), ("answer-after", 504, "Timeout"),
)  # fmt: skip
READS = (("reset", 0, ""), ("hold", 0, ""), ("answer", 429, "TooManyRequests"), ("answer", 500, "InternalError"))


class Storm:
    """Faults for the requests whose path or body has the life's name."""

    def __init__(self, seed: int) -> None:
        self.name = f"life-{seed:03d}"
        self.met: list[str] = []
        self._dice = random.Random(f"storm {seed}")
        self._over = False

    def end(self) -> None:
        """No more."""
        self._over = True

    def fault(self, seen: Seen) -> Fault | None:
        """What this request meets."""
        concerned = self.name in seen.path or self.name.encode() in seen.body
        if self._over or not concerned or seen.watch or len(self.met) >= MOST_FAULTS:
            return None
        if self._dice.random() >= CHANCE:
            return None
        kind, status, reason = self._dice.choice(READS if seen.method == "GET" else WRITES)
        fault = Fault(kind, status=status or 500, reason=reason or "InternalError")
        self.met.append(f"{kind} {status or ''} {seen.method} {seen.path}")
        if kind.startswith("hold"):
            threading.Timer(HELD_S, fault.release).start()
        return fault


class Weather:
    """The storms of all lives, and what befalls the watches that they share."""

    def __init__(self, storms: list[Storm]) -> None:
        self.storms = storms
        self.watches: list[str] = []
        self._dice = random.Random("watches")

    def fault(self, seen: Seen) -> Fault | None:
        """Called by the proxy for each request."""
        if seen.watch and not all(storm._over for storm in self.storms):
            if self._dice.random() < 0.5:
                kind = self._dice.choice(("expire", "cut"))
                self.watches.append(kind)
                return Fault(kind, watch=True, lines=self._dice.choice((2, 5, 20)))
            return None
        return next((found for storm in self.storms if (found := storm.fault(seen)) is not None), None)
