"""`python -m mlportal up`."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Choose what to do."""
    parser = argparse.ArgumentParser(prog="mlportal", description="Run the portal on this machine.")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("up", help="start everything and stay in the foreground")
    actions.add_parser("prepare", help="tables, static files, first records (part of every start)")
    if parser.parse_args().action == "up":
        from mlportal import up  # noqa: PLC0415 - the supervisor stays small: it never loads Django

        return up.main()
    from mlportal import prepare  # noqa: PLC0415

    return prepare.run()


if __name__ == "__main__":
    sys.exit(main())
