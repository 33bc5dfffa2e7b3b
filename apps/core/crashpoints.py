"""Named places at which a test may end the process, so that recovery is proved where it matters.

``MLPORTAL_CRASH_AT=<point>`` makes the process that reaches the point write its name to the file
``MLPORTAL_CRASH_FILE`` and stop there for good, until the test kills it (a point that nobody reaches leaves no file,
and the test fails). A second process that reaches the same point passes: the file exists by then. Without the
variable a point costs one dictionary look-up.
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

log = logging.getLogger(__name__)

POINT = "MLPORTAL_CRASH_AT"
FILE = "MLPORTAL_CRASH_FILE"


def reach(name: str) -> None:
    """Say that the process is at ``name``; it ends here when a test asked for it."""
    if os.environ.get(POINT) != name:
        return
    try:
        handle = os.open(Path(os.environ[FILE]), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    os.write(handle, f"{os.getpid()} {name}\n".encode())
    os.close(handle)
    log.warning("stopping at the crash point %s", name)
    os.kill(os.getpid(), signal.SIGSTOP)
