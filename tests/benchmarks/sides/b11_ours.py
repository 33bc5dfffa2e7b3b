"""B11, this project: the gateway's process on 5,000 launches in PostgreSQL; only where a pod is, is played."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import django

django.setup()

import json  # noqa: E402 - Django has to be set up first
import socket  # noqa: E402

from django.core import signing  # noqa: E402

from apps.clusters import access  # noqa: E402
from apps.clusters.models import Cluster  # noqa: E402
from apps.instances import podways  # noqa: E402
from apps.instances.gateway import people, serving, table  # noqa: E402
from apps.instances.models import Instance, OpenPort  # noqa: E402
from tests.benchmarks.sides import b6_ours  # noqa: E402
from tests.benchmarks.sides.meter import say  # noqa: E402


def fill(ports: list[int]) -> dict[str, Any]:
    """Rows, all running, each with these ports open to its owner; a cookie for each instance and the first port."""
    b6_ours.fill("http://127.0.0.1:1")
    Cluster.objects.as_system().update(exposure="gateway")
    rows = list(Instance.objects.as_system().order_by("name"))
    OpenPort.objects.bulk_create(OpenPort(instance=row, number=port) for row in rows for port in ports)
    signer = signing.TimestampSigner(salt="mlportal.port.pass")
    return {
        "ids": [row.pk.hex for row in rows],
        "cookies": {
            port: [signer.sign_object(people.Pass(row.pk.hex, 1, port, row.owner_id.hex).says()) for row in rows[:400]]
            for port in ports
        },
    }


def serve(port: int, said: str) -> None:
    """Serve there until told to end; what the database was asked is written to that file at the end."""
    counted: Counter[str] = Counter()
    access.is_own = lambda cluster: True  # type: ignore[assignment]
    podways.address = lambda cluster, namespace, pod, launch: "127.0.0.1"  # type: ignore[assignment]
    for module, name in ((table, "read"), (people, "admit")):
        setattr(module, name, _counting(getattr(module, name), counted, name))
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    serving.run(listener, stays=True)
    with open(said, "w", encoding="utf-8") as file:  # noqa: PTH123 - the process ends here
        json.dump(counted, file)


def _counting(call: Any, counted: Counter[str], name: str) -> Any:
    def counting(*args: Any) -> Any:
        counted[name] += 1
        return call(*args)

    return counting


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        say(**fill([int(port) for port in sys.argv[2:]]))
    else:
        serve(int(sys.argv[2]), sys.argv[3])
