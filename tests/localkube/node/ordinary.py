"""Pods of an ordinary user, checked in a process of its own: `python -m tests.localkube.node.ordinary HOME TABLE`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from localkube.node.limits import SoftLimits
from tests.localkube.node.support import Node, leftovers, main_state

GREEDY = "h = []\nwhile True: h.append(bytearray(2**22)); import time; time.sleep(0.01)"


async def checks(node: Node) -> None:
    assert os.geteuid() != 0
    context = node.kubelet.context
    assert not context.limits.hard
    assert not context.volumes.images
    assert isinstance(context.limits, SoftLimits)
    node.claim("data")
    home: Any = {
        "spec": {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "data"}}]},
        "volumeMounts": [{"name": "home", "mountPath": "/root"}],
    }
    text = await node.output("import os; open('/root/x', 'w').write('1'); print(os.getuid())", **home)
    assert text == "1000\n", text
    assert await node.output("print(open('/root/x').read())", **home) == "1\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))"
        assert await node.output(script) == "111\n"
    pod = node.create("import time; time.sleep(60)")
    await node.running(pod)
    assert await node.exec(pod, "sh", "-c", "id -u; kill -0 1; exit 3") == (3, "1000\n")
    code, shown = await node.exec(pod, "tty", tty=True)
    assert (code, shown.strip()) == (0, "/dev/pts/0")
    greedy = node.create(GREEDY, resources={"limits": {"memory": "48Mi"}})
    done = await node.finished(greedy, timeout_s=20)
    assert main_state(done)["terminated"]["reason"] == "OOMKilled"


async def main() -> None:
    home, table = (Path(word) for word in sys.argv[1:])
    os.environ["LOCALKUBE_IMAGE_CACHE"] = str(home / "images")
    node = Node(home, table)
    await node.start()
    try:
        await checks(node)
    finally:
        await node.stop()
    assert leftovers(home) == [], leftovers(home)
    print("all good")


if __name__ == "__main__":
    asyncio.run(main())
