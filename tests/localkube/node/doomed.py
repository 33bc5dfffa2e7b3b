"""A node in a process of its own, to be killed: `python -m tests.localkube.node.doomed HOME TABLE ORPHAN_S PODS`.

PODS is a JSON list of [script, restart policy]; a line `running` follows when all of them run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from pathlib import Path

from tests.localkube.node.support import FAST, Node, main_state


async def main() -> None:
    home, table, orphan, pods = sys.argv[1:]
    node = Node(Path(home), Path(table), dataclasses.replace(FAST, orphan_after_s=float(orphan)))
    await node.start()
    made = [node.create(script, spec={"restartPolicy": policy}) for script, policy in json.loads(pods)]
    for pod in made:
        await node.until(pod, lambda p: main_state(p).keys() & {"running", "terminated"})
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    print("running", flush=True)
    await stopping.wait()
    await node.stop()


if __name__ == "__main__":
    asyncio.run(main())
