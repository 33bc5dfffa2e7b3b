"""`make up`: from a checkout to a running portal in the foreground, and back to nothing on Ctrl-C."""

from __future__ import annotations

import os
import signal
from importlib import import_module

from mlportal import env, preflight, say, secretfile, sshhost, stack, supervise
from mlportal.embedded import postgres
from mlportal.embedded.caddy import CannotRunCaddy
from mlportal.embedded.postgres import CannotRunPostgres
from mlportal.embedded.redis import CannotRunRedis
from mlportal.env import BadEnvironment, Environment
from mlportal.processes import end, left_behind
from mlportal.secretfile import BadSecretFile


def main() -> int:
    """Run the portal until it is told to stop. Returns the exit status (0, 1 when one is running, else sysexits)."""
    os.umask(0o077)
    try:
        environment = env.read()
        home = environment.home
        preflight.folders(home)
        with preflight.only_one(home, url=environment.origin):
            _recover(environment)
            preflight.port_free(environment)
            preflight.room(home)
            preflight.namespaces(environment)
            preflight.secrets_present(environment)
            _check_outside(environment)
            secretfile.ensure(environment.secret_file)
            if environment.database_embedded and postgres.initialise(data=home.postgres_data):
                say.event(say.DONE, "postgres", f"made a database in {home.postgres_data}")
            listener = preflight.ssh_listener(environment)
            if listener is not None:
                sshhost.ensure(environment.ssh_host_key_file)
            with preflight.unix_listener(home.gateway_socket) as gateway:
                failure = supervise.run(
                    stack.supervised(environment, ssh=listener, gateway=gateway),
                    home=home.root,
                    log=home.log,
                    record=home.processes_file,
                    on_ready=lambda: _welcome(environment),
                )
    except BadEnvironment as error:
        return _refuse(str(error), os.EX_USAGE)
    except BadSecretFile as error:
        return _refuse(str(error), os.EX_CONFIG)
    except (CannotRunPostgres, CannotRunRedis, CannotRunCaddy) as error:
        return _refuse(str(error), os.EX_UNAVAILABLE)
    except preflight.Refused as error:
        return _refuse(str(error), error.code)
    except KeyboardInterrupt:  # before the supervisor, which catches the signal itself
        return _refuse("interrupted", 128 + signal.SIGINT)
    if failure:
        return _refuse(failure, os.EX_SOFTWARE)
    say.event(say.STOPPED, "portal", "stopped; nothing is left running")
    return os.EX_OK


def _check_outside(environment: Environment) -> None:
    """Ask the servers that others run. Their clients take a moment to load, which an embedded start need not wait."""
    if not (environment.database_embedded and environment.redis_embedded):
        import_module("mlportal.outside").check(environment)


def _refuse(why: str, code: int) -> int:
    say.event(say.WRONG, "portal", why)
    return code


def _recover(environment: Environment) -> None:
    """End what a killed supervisor left."""
    home = environment.home
    left = left_behind(home=home.root, recorded=supervise.recorded(home.processes_file))
    if left:
        say.event(say.NOTE, "portal", f"ending {len(left)} processes that an earlier start left behind")
        end(left)
    home.processes_file.unlink(missing_ok=True)


def _welcome(environment: Environment) -> None:
    say.event(say.DONE, "portal", f"ready: {environment.origin}/")
    password = environment.home.first_password
    if password.exists():
        say.line(f"\n  Address   {environment.origin}/\n  Name      admin")
        say.line(f"  Password  {password.read_text(encoding='utf-8')}   (shown this once)\n")
        password.unlink()
    say.event(say.NOTE, "portal", f"logs are in {environment.home.log}; Ctrl-C stops everything")
