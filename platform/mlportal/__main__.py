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
    words = actions.add_parser("words", help="the words of the interface")
    words.add_argument("what", choices=("collect", "check"))
    arguments = parser.parse_args()
    # Imported here so that the supervisor stays small: it never loads Django.
    if arguments.action == "up":
        from mlportal import up  # noqa: PLC0415

        return up.main()
    if arguments.action == "prepare":
        from mlportal import prepare  # noqa: PLC0415

        return prepare.run()
    from mlportal import words as catalogue  # noqa: PLC0415

    return catalogue.collect() if arguments.what == "collect" else catalogue.check()


if __name__ == "__main__":
    sys.exit(main())
