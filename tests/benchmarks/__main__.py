"""``python -m tests.benchmarks [NAME...]``: run these benchmarks, or all, and write their pages."""

from __future__ import annotations

import sys

from tests.benchmarks import (
    b1_cron_tick,
    b4_pod_submission,
    b5_instance_launch,
    b6_reconcile,
    b11_gateway,
    b12_filled,
    b12_footprint,
    launch,
    routes,
    ssh,
)

KNOWN = {
    "b1": b1_cron_tick.main,
    "b4": b4_pod_submission.main,
    "b5": b5_instance_launch.main,
    "b6": b6_reconcile.main,
    "b11": b11_gateway.main,
    "b12": b12_footprint.main,
    "b12-filled": b12_filled.main,
    "launch": launch.main,
    "routes": routes.main,
    "ssh": ssh.main,
}


def main(names: list[str]) -> int:
    """Run those named, or all."""
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(KNOWN)}", file=sys.stderr)
        return 2
    for name in names or KNOWN:
        KNOWN[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
