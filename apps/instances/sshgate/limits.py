"""How much one address and one person may ask of the entrance. Pure: the clock is given."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

#: Keys that one connection may offer. OpenSSH's own client offers what is in its agent, one after the other.
OFFERS: Final = 12
#: Wrong keys and unknown names from one address: so many at once, then so many a second.
WRONG_AT_ONCE: Final = 60
WRONG_A_SECOND: Final = 0.5
#: Connections that have not said who they are.
STRANGERS: Final = 100
STRANGERS_OF_AN_ADDRESS: Final = 20
#: Connections and channels of one person, and channels of one connection.
CONNECTIONS_OF_A_PERSON: Final = 100
CHANNELS_OF_A_CONNECTION: Final = 64
#: Addresses remembered; the one that was quiet longest is forgotten first.
REMEMBERED: Final = 10_000


@dataclass
class Bucket:
    """What is left of an allowance that fills up by itself."""

    left: float
    at: float


@dataclass
class Wrong:
    """Wrong guesses by address."""

    at_once: float = WRONG_AT_ONCE
    a_second: float = WRONG_A_SECOND
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def note(self, address: str, now: float) -> None:
        """One more from there."""
        bucket = self._buckets.pop(address, None) or Bucket(self.at_once, now)
        self._buckets[address] = Bucket(max(0.0, self._filled(bucket, now) - 1), now)
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)

    def too_many(self, address: str, now: float) -> bool:
        """Whether that address has used up its allowance for now."""
        bucket = self._buckets.get(address)
        return bucket is not None and self._filled(bucket, now) < 1

    def _filled(self, bucket: Bucket, now: float) -> float:
        return min(self.at_once, bucket.left + (now - bucket.at) * self.a_second)


@dataclass
class Counts:
    """How many there are by name; a name with none takes no room."""

    _held: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, most: int) -> bool:
        """One more, unless there are ``most`` already."""
        held = self._held.get(name, 0)
        if held >= most:
            return False
        self._held[name] = held + 1
        return True

    def give_back(self, name: str) -> None:
        """One fewer."""
        held = self._held.get(name, 0) - 1
        if held > 0:
            self._held[name] = held
        else:
            self._held.pop(name, None)

    @property
    def total(self) -> int:
        """All together."""
        return sum(self._held.values())
