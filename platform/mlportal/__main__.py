"""`python -m mlportal up`."""

from __future__ import annotations

import argparse
import os
import sys

from mlportal.env import BadEnvironment

ALONE = {
    "migrate": "tables and first records",
    "wait": "wait until the tables are those of this version",
    "web": "pages, REST and web sockets",
    "worker": "reconcile what was changed",
    "control": "schedule, watch clusters, collect logs, sweep",
    "sshgateway": "the entrance to instances by SSH",
    "gateway": "the way to instances where one route leads to all of them",
}
"""What a container runs: one program, with databases, cluster and entrance given from outside."""


def main() -> int:
    """Choose what to do."""
    parser = argparse.ArgumentParser(prog="mlportal", description="Run the portal on this machine.")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("up", help="start everything and stay in the foreground")
    actions.add_parser("prepare", help="tables, static files, first records (part of every start)")
    for name, what in ALONE.items():
        action = actions.add_parser(name, help=f"{what}, without the rest (for containers)")
        if name in {"web", "sshgateway", "gateway"}:
            what = "SSH" if name == "sshgateway" else "plain HTTP"
            action.add_argument("--listen", required=True, metavar="ADDRESS:PORT", help=f"where to serve {what}")
    migrations = actions.add_parser("migrations", help="write what changed in the models as migrations")
    migrations.add_argument("apps", nargs="*", metavar="APP")
    actions.add_parser("words", help="collect the words of the interface for translation")
    actions.add_parser("check", help="missing migrations and translations (part of make lint)")
    given = parser.parse_args()
    try:
        return _run(given)
    except BadEnvironment as error:
        sys.stderr.write(f"mlportal: {error}\n")
        return os.EX_USAGE


def _run(given: argparse.Namespace) -> int:
    action = given.action
    # Imported here so that a start that is refused is refused at once.
    if action == "up":
        from mlportal import up  # noqa: PLC0415

        return up.main()
    if action == "prepare":
        from mlportal import prepare  # noqa: PLC0415

        return prepare.run()
    if action in ALONE:
        from mlportal import alone  # noqa: PLC0415

        return alone.run(action, listen=getattr(given, "listen", ""))
    if action == "words":
        from mlportal import words  # noqa: PLC0415

        return words.collect()
    from mlportal import checks  # noqa: PLC0415

    if action == "migrations":
        return checks.make_migrations(given.apps)
    return checks.run()


if __name__ == "__main__":
    sys.exit(main())
