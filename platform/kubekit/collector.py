"""The garbage collector, at rest while thousands of objects are made or read of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Iterator[None]:
    """No collection inside. A page of pods is a hundred thousand new objects, and going through the growing heap again
    and again takes two thirds of a list's time. For work that waits for nothing; threads meanwhile go without too.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
