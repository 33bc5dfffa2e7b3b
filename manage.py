#!/usr/bin/env python3
"""Django's command line. Puts the two source roots first on the path, from whatever folder it is called."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> int:
    """Run one management command. Returns the exit status (sysexits where a setting forbids to begin)."""
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - needs the path above

    import mlportal.celery  # noqa: F401, PLC0415 - what a command asks for is hinted to the portal's own broker
    from mlportal.env import BadEnvironment  # noqa: PLC0415

    try:
        execute_from_command_line(sys.argv)
    except BadEnvironment as error:
        sys.stderr.write(f"manage.py: {error}\n")
        return os.EX_USAGE
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
