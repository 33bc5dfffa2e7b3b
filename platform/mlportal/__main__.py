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
    actions.add_parser("words", help="collect the words of the interface for translation")
    actions.add_parser("check", help="missing migrations and translations (part of make lint)")
    action = parser.parse_args().action
    # Imported here so that a start that is refused is refused at once.
    if action == "up":
        from mlportal import up  # noqa: PLC0415

        return up.main()
    if action == "prepare":
        from mlportal import prepare  # noqa: PLC0415

        return prepare.run()
    if action == "words":
        from mlportal import words  # noqa: PLC0415

        return words.collect()
    from mlportal import checks  # noqa: PLC0415

    return checks.run()


if __name__ == "__main__":
    sys.exit(main())
