"""`python -m localkube serve`: the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from localkube.config import Config, ConfigError
from localkube.node import editors
from localkube.node.kubelet import Kubelet, NodeError
from localkube.runtime import NodeRuntime, NoNode
from localkube.server import Server
from localkube.status import ApiError

log = logging.getLogger("localkube")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localkube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the API server and its node; a development tool, not for production")
    serve.add_argument("--home", type=Path, required=True, help="folder of everything kept")
    serve.add_argument("--listen", default="127.0.0.1:6443", help="loopback address and port (0: any free one)")
    serve.add_argument("--caddy-admin", type=Path, help="Caddy's admin socket, which receives the Ingress routes")
    serve.add_argument("--hosts", type=Path, help="Caddy's folder for a socket per host, which spares it those routes")
    serve.add_argument("--images", type=Path, help="table of image references (docker/images.toml)")
    serve.add_argument("--node-name", default="localkube")
    serve.add_argument("--cpu", type=int, help="CPUs the node offers (default: those of the machine)")
    serve.add_argument("--memory-mib", type=int, help="memory the node offers (default: that of the machine)")
    serve.add_argument("--fake-gpus", type=int, default=0, help="GPUs the node claims to have; nothing is behind them")
    serve.add_argument("--no-node", action="store_true", help="the API alone: pods stay Pending")
    editor = commands.add_parser("code-server", help="install VS Code for images that have its recipe; takes minutes")
    editor.add_argument("--home", type=Path, required=True, help="the folder that `serve` gets")
    editor.add_argument("--images", type=Path, required=True, help="table of image references (docker/images.toml)")
    return parser


def _install_editors(home: Path, table: Path) -> int:
    """VS Code of each recipe in the table, unless it is there; 0, or 1 after saying what is missing."""
    cache = editors.cache_of(home.absolute())
    try:
        for recipe in editors.recipes(table.absolute()):
            sys.stdout.write(f"{editors.install(cache, recipe)}\n")
    except (editors.CannotInstall, OSError) as error:
        sys.stderr.write(f"localkube: {error}\n")
        return 1
    return 0


def _config(options: argparse.Namespace) -> Config:
    given = {
        "cpu": options.cpu,
        "memory": options.memory_mib * 2**20 if options.memory_mib else None,
        "images": options.images,
    }
    return Config(
        home=options.home.absolute(),
        listen=options.listen,
        caddy_admin=options.caddy_admin,
        hosts=options.hosts,
        node_name=options.node_name,
        fake_gpus=options.fake_gpus,
        **{key: value for key, value in given.items() if value is not None},
    )


async def _serve(config: Config, runtime: NodeRuntime) -> None:
    server = Server(config, runtime)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    await server.start()
    log.info("localkube (a development tool, not for production) serves https://%s", server.address)
    await stopping.wait()
    log.info("stopping")
    await server.stop()


def main() -> int:
    """Run the command; 0 after a clean stop, 2 for a setting that cannot be, 1 for a start that failed."""
    options = _parser().parse_args()
    if options.command == "code-server":
        return _install_editors(options.home, options.images)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = _config(options)
    # Pods run as other users and enter folders below the home; the home itself is closed to everybody else.
    os.umask(0o022)
    config.home.mkdir(parents=True, exist_ok=True)
    config.home.chmod(0o700)
    try:
        asyncio.run(_serve(config, NoNode() if options.no_node else Kubelet()))
    except ConfigError as error:
        sys.stderr.write(f"localkube: {error}\n")
        return 2
    except (ApiError, NodeError, OSError) as error:
        sys.stderr.write(f"localkube: cannot start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
