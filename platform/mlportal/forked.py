"""A child of the supervisor that goes on as one of the portal's programs instead of executing another file."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

_PR_SET_NAME = 15  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8  # malloc.h
_libc = ctypes.CDLL(None)


def become(call: Callable[[], None], *, name: str, environ: Mapping[str, str], directory: Path) -> NoReturn:
    """Run `call` and end the process with its exit status. Nothing of the supervisor's own runs after this."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - for the life of the process
        # New objects: the inherited ones remember whether the supervisor's output was a file.
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        os.environ.update(environ)
        os.chdir(directory)
        _libc.prctl(_PR_SET_NAME, f"mlportal-{name}".encode(), 0, 0, 0)
        # glibc keeps an arena for each thread otherwise, and memory that was freed stays with the process.
        _libc.mallopt(_M_ARENA_MAX, 2)
        _libc.mallopt(_M_TRIM_THRESHOLD, 128 * 1024)
        call()
        code = 0
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else int(request.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of the process: said, then its exit status
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
