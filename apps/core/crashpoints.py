"""Named places at which a test may end the process, so that recovery is proved where it matters.

``MLPORTAL_CRASH_POINTS=<folder>``, set when the portal starts, lets a test arm one point after another while it runs:
it puts the file ``<point>.armed`` there. The first process that reaches the point takes the file away, says in
``<point>.reached`` who it is and stops there, with all its threads, until it is killed. A point that nobody reaches
leaves ``.armed``, and the test fails. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "MLPORTAL_CRASH_POINTS"
_folder = os.environ.get(VARIABLE)


def reach(name: str) -> None:
    """Say that the process is at ``name``; it ends here when a test asked for it."""
    if _folder is None:
        return
    armed = Path(_folder, f"{name}.armed")
    taken = armed.with_suffix(f".{os.getpid()}")
    try:
        armed.rename(taken)
    except FileNotFoundError:
        return
    log.info("stopping at the crash point %s", name)
    taken.write_text(str(os.getpid()), encoding="ascii")
    taken.rename(armed.with_suffix(".reached"))
    os.kill(os.getpid(), signal.SIGSTOP)
