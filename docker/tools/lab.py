"""Starts the JupyterLab of an image that was not made for the portal, with the portal's own check at its door.

The folder of this file comes first in the path of this process alone, so that programs of the instance never see it.
What stands in the way is handed back to the entrypoint, which goes on without JupyterLab.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

TOOLS = Path(os.environ["MLPORTAL_TOOLS"])
LIVE = Path(os.environ.get("MLPORTAL_LIVE", "/run/mlportal"))
#: The first that lets a handler say that it needs no user, on which the portal's check is built.
OLDEST_SERVER = (2, 13)
LONGEST = 200


def without(why: str, detail: str) -> None:
    """Go on as the entrypoint, in this process."""
    shell, entrypoint = str(TOOLS / "bin" / "sh"), str(TOOLS / "entrypoint")
    words = [shell, entrypoint, "--without", why, " ".join(detail.split())[:LONGEST]]
    os.execv(shell, words)  # noqa: S606 - it is one


def look() -> str:
    """JupyterLab's version. Does not return when it cannot be used."""
    try:
        server = version("jupyter-server")
        numbers = tuple(int(part) for part in server.split(".")[:2])
    except (PackageNotFoundError, ValueError):
        server, numbers = "", ()
    if numbers < OLDEST_SERVER:
        without("old-jupyter", server)
    try:
        import_module("mlportal_jupyter.identity")
        import_module("jupyterlab.labapp")
        return version("jupyterlab")
    except Exception as error:  # whatever an image's packages raise is told on the instance's page
        without("broken", f"{type(error).__name__}: {error}")
        raise


def arguments(home: str, port: str) -> list[str]:
    """As in docker/dev-base/entrypoint."""
    server = {
        "ip": "0.0.0.0",  # noqa: S104 - the pod's address is the way in
        "port": port,
        "port_retries": "0",
        "root_dir": home,
        "allow_remote_access": "True",
        "identity_provider_class": "mlportal_jupyter.identity.PortalIdentityProvider",
        "quit_button": "False",
    }
    extensions = ("mlportal_jupyter=True", "jupyter_lsp=False", "notebook_shim=False")
    lab = {
        "news_url": "None",
        "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "extension_manager": "readonly",
    }
    return [
        "--no-browser",
        *(f"--ServerApp.{name}={value}" for name, value in server.items()),
        *(f"--ServerApp.jpserver_extensions={value}" for value in extensions),
        *(f"--LabApp.{name}={value}" for name, value in lab.items()),
    ]


def main() -> None:
    """Say what is here, then be JupyterLab."""
    found = look()
    shell = os.environ.get("SHELL", "")
    (LIVE / "entrances").write_text(f"jupyterlab {found}\nshell {shell}\npython {sys.executable}\n")
    sys.argv = ["jupyter-lab", *arguments(os.environ["HOME"], os.environ.get("MLPORTAL_PORT", "8888"))]
    sys.exit(import_module("jupyterlab.labapp").main())


if __name__ == "__main__":
    main()
