"""A supervisor with three small programs, for tests: `python fake_stack.py FOLDER`.

`first` is a program of its own, `second` needs it, `third` is forked from the supervisor and needs `second`. Each
writes its pid, and stops a moment after it is asked to, noting when. `doorman` starts with a connection to the port
that the file `port` names, tells it its pid, and ends.
"""

import fcntl
import os
import signal
import socket
import sys
import time
from pathlib import Path

from mlportal import supervise
from mlportal.program import Program
from mlportal.supervise import Supervised

FOLDER = Path(sys.argv[1])


def act(name: str) -> None:
    """What each program does. A file `<name>.fails` makes it end at once."""
    if (FOLDER / f"{name}.fails").exists():
        print(f"{name} cannot go on")
        sys.exit(3)

    def leave(*_):
        time.sleep(0.1)
        with (FOLDER / "stopped").open("a") as file:
            file.write(f"{name}\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGUSR1, lambda *_: print(f"{name} says something", flush=True))
    with (FOLDER / "started").open("a") as file:
        file.write(f"{name}\n")
    (FOLDER / f"{name}.pid").write_text(f"{os.getpid()} {os.getsid(0)}")
    while True:
        time.sleep(60)


def program(name: str, *, forked: bool) -> Program:
    """One of the three."""
    pid_file = FOLDER / f"{name}.pid"
    return Program(
        name=name,
        argv=(sys.executable, __file__, str(FOLDER), name),
        call=(lambda: act(name)) if forked else None,
        ready=pid_file.exists,
        prepare=lambda: pid_file.unlink(missing_ok=True),
        environ={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def doorman(listener):
    """One visitor, then home."""
    listener.setblocking(True)
    with listener.accept()[0] as visitor:
        visitor.sendall(str(os.getpid()).encode())


def woken() -> Program:
    """The doorman, asleep."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        (FOLDER / "port").write_text(str(made.getsockname()[1]))
        listener = socket.socket(fileno=fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 300))
    return Program(
        name="doorman", argv=("doorman",), call=lambda: doorman(listener), ready=lambda: True, wakes=listener
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        act(sys.argv[2])
    failure = supervise.run(
        [
            Supervised(program=program("third", forked=True), stage=3, needs=("second",)),
            Supervised(program=woken(), stage=3, needs=("second",)),
            Supervised(program=program("first", forked=False), stage=1),
            Supervised(program=program("second", forked=False), stage=2, needs=("first",)),
        ],
        home=FOLDER,
        log=FOLDER,
        record=FOLDER / "processes.json",
        on_ready=lambda: print("all ready", flush=True),
    )
    sys.exit(failure or 0)
