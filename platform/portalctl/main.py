"""The command line: words in, an exit status out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from portalctl import account, catalog, commands, instances, lifetime, ports, ssh
from portalctl.account import NotSignedIn
from portalctl.commands import Command, Usage
from portalctl.rest import Refused, Unreachable

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Carry out one command; see the package for the exit statuses."""
    environ = os.environ if environ is None else environ
    options = parser().parse_args(argv)
    try:
        if options.command is None:
            return commands.login(options, environ)
        command: Command = options.command
        return command(account.read(environ), options)
    except (Usage, NotSignedIn) as error:
        return _fail(str(error), 2)
    except Refused as error:
        return _fail(f"{error}\n({error.code})", 3)
    except Unreachable as error:
        return _fail(str(error), 4)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # "portalctl instance list | head"; nothing more can be said, not even at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _fail(text: str, code: int) -> int:
    sys.stderr.write(text + "\n")
    return code


def parser() -> argparse.ArgumentParser:
    """All commands."""
    top = argparse.ArgumentParser(prog="portalctl", description="The ML platform portal from a terminal.")
    kinds = top.add_subparsers(required=True, metavar="COMMAND")
    sign_in = kinds.add_parser("login", help="sign in and keep a token")
    sign_in.add_argument("address", help="the portal's address, e.g. http://127.0.0.1:8000")
    sign_in.add_argument("--user", help="name (asked for when left out, as is the password without PORTAL_PASSWORD)")
    sign_in.set_defaults(command=None)
    _instances(kinds.add_parser("instance", help="dev instances").add_subparsers(required=True, metavar="VERB"))
    _volumes(kinds.add_parser("volume", help="volumes").add_subparsers(required=True, metavar="VERB"))
    _flows(kinds.add_parser("flow", help="task flows").add_subparsers(required=True, metavar="VERB"))
    _runs(kinds.add_parser("run", help="runs of flows").add_subparsers(required=True, metavar="VERB"))
    _keys(kinds.add_parser("key", help="your public keys for SSH").add_subparsers(required=True, metavar="VERB"))
    shell = _verb(kinds, "ssh", "open a shell in an instance, or run a command there", ssh.run, named="name")
    shell.add_argument("words", nargs=argparse.REMAINDER, help="options of ssh, and what to run")
    written = _verb(kinds, "ssh-config", "print what ~/.ssh/config needs for plain `ssh NAME`", ssh.config)
    written.add_argument("names", nargs="*", metavar="NAME", help="NAME or QUEUE/NAME; yours that run when left out")
    written.add_argument("--write", action="store_true", help="into ~/.ssh, where ssh, scp, rsync and editors read it")
    queues = kinds.add_parser("queue", help="queues").add_subparsers(required=True, metavar="VERB")
    _list(queues, commands.list_of("queues", "name", "state", "team", "cluster"))
    _images(kinds.add_parser("image", help="images to choose from").add_subparsers(required=True, metavar="VERB"))
    teams = kinds.add_parser("team", help="teams").add_subparsers(required=True, metavar="VERB")
    _list(teams, commands.list_of("teams", "name", "description", "own_images"))
    rule = _verb(teams, "own-images", "allow images that are not in the catalogue", catalog.own_images, named="name")
    rule.add_argument("--from", dest="source", action="append", metavar="REGISTRY[/PATH]", help="from there alone")
    rule.add_argument("--forbid", action="store_true", help="images of the catalogue alone")
    sizes = kinds.add_parser("size", help="sizes to choose from").add_subparsers(required=True, metavar="VERB")
    _list(sizes, commands.list_of("sizes", "name", "cpu_millis", "memory_bytes", "gpus", "gpu_resource"))
    return top


def _verb(verbs: Verbs, name: str, text: str, command: Command, *, named: str = "") -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    if named:
        made.add_argument(named, help="NAME or QUEUE/NAME" if named == "name" else "the run's id")
    made.set_defaults(command=command)
    return made


def _list(verbs: Verbs, command: Command, *, queue: bool = False) -> argparse.ArgumentParser:
    made = _verb(verbs, "list", "list them", command)
    made.add_argument("--json", action="store_true", help="as JSON")
    if queue:
        made.add_argument("--queue", help="only of this queue")
    return made


def _key(made: argparse.ArgumentParser) -> None:
    made.add_argument("--key", default=commands.new_key(), help="idempotency key: a repeat finds the first object")


def _delete(verbs: Verbs, kind: str) -> None:
    made = _verb(verbs, "delete", "delete it", commands.delete(kind), named="name")
    made.add_argument("--yes", action="store_true", help="really")


def _instances(verbs: Verbs) -> None:
    made = _verb(verbs, "create", "make and start one", commands.create_instance)
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--image", help="a name of: portalctl image list")
    which.add_argument("--own-image", metavar="REFERENCE", help="one of your own, where the team may")
    made.add_argument("--size", required=True, help="a name of: portalctl size list")
    made.add_argument("--queue")
    made.add_argument("--name")
    made.add_argument("--volume", action="append", default=[], metavar="VOLUME:/PATH[:ro]")
    _set_up(made)
    made.add_argument("--ends", type=lifetime.moment, metavar="TIME", help=lifetime.HOW)
    made.add_argument("--wait", action="store_true", help="until it runs")
    _key(made)
    _list(
        verbs,
        commands.list_of("instances", "name", "state", "queue", "owner", "image", "size", "lifetime.ends_at"),
        queue=True,
    )
    _verb(verbs, "show", "all about one", commands.show_one("instances"), named="name")
    for verb, text in (("start", "start it"), ("stop", "stop it"), ("restart", "stop and start it")):
        _verb(verbs, verb, text, commands.act("instances", verb), named="name").add_argument(
            "--wait", action="store_true", help="until it is so"
        )
    _verb(verbs, "key", "print the key of this launch", commands.instance_key, named="name")
    _verb(
        verbs,
        "rotate-key",
        "a new key at once; what runs goes on",
        commands.act("instances", "rotate-key"),
        named="name",
    )
    _verb(verbs, "log", "print the end of its log", instances.log, named="name")
    _instance_changes(verbs)
    kept = _verb(verbs, "keep", "say until when it is kept, whatever it does", lifetime.keep, named="name")
    kept.add_argument("--until", required=True, type=lifetime.moment, metavar="TIME", help=lifetime.HOW)
    ending = _verb(verbs, "end", "say when it is stopped", lifetime.end, named="name")
    ending.add_argument("--at", required=True, type=lifetime.moment, metavar="TIME", help=lifetime.HOW)
    _ports(verbs)
    _delete(verbs, "instances")


def _ports(verbs: Verbs) -> None:
    made = _verb(verbs, "ports", "list its open ports", ports.listed, named="name")
    made.add_argument("--json", action="store_true", help="as JSON")
    for verb, text, command in (
        ("open-port", "give a port an address of its own, for you alone", ports.opened),
        ("close-port", "take the address away", ports.closed),
        ("share-port", "let somebody use an open port for a time", ports.shared),
    ):
        made = _verb(verbs, verb, text, command, named="name")
        made.add_argument("number", type=int, metavar="PORT")
        if command is ports.opened:
            made.add_argument("--label", default="", help="what it is")
        if command is ports.shared:
            made.add_argument("person")
            made.add_argument("--days", type=float, default=7.0)
            made.add_argument("--end", action="store_true", help="they use it no more")


def _instance_changes(verbs: Verbs) -> None:
    made = _verb(verbs, "set", "change size, image, volumes, variables and so on", instances.change, named="name")
    made.add_argument("--image")
    made.add_argument("--size")
    made.add_argument("--volume", action="append", default=[], metavar="VOLUME:/PATH[:ro]", help="these and no others")
    made.add_argument("--no-volumes", action="store_true", help="none but the home")
    _set_up(made)
    made.add_argument("--unset-env", action="append", default=[], metavar="NAME")
    made.add_argument("--restart", action="store_true", help="of one that runs: restart it now")
    made.add_argument("--next-start", action="store_true", help="of one that runs: leave it until its next start")
    made.add_argument("--wait", action="store_true", help="until it runs again")
    made.add_argument("--dry-run", action="store_true", help="only say what would change")
    made.add_argument("--json", action="store_true", help="the plan as JSON")
    _verb(verbs, "rename", "give it another name", instances.rename, named="name").add_argument("new_name")
    twin = _verb(verbs, "clone", "make and start one like it", instances.clone, named="name")
    twin.add_argument("new_name", nargs="?", help="a name is proposed when left out")
    twin.add_argument("--queue", help="the same one when left out")
    twin.add_argument("--wait", action="store_true", help="until it runs")
    _key(twin)
    given = _verb(verbs, "transfer", "make a colleague its owner", instances.transfer, named="name")
    given.add_argument("person")
    given.add_argument("--with-home", action="store_true", help="the home goes along")
    given.add_argument("--yes", action="store_true", help="really")
    shown = _verb(verbs, "share", "let somebody look at it for a time", instances.share, named="name")
    shown.add_argument("person")
    shown.add_argument("--days", type=float, default=7.0)
    shown.add_argument("--end", action="store_true", help="they see it no more")


def _set_up(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="no secrets: all who see it read them"
    )
    made.add_argument("--script", metavar="FILE", help="run before JupyterLab at each start; - reads standard input")
    made.add_argument("--shm", metavar="SIZE", help="of /dev/shm, such as 2Gi; half of the memory when left out")
    made.add_argument("--time-zone", metavar="ZONE", help="such as Asia/Shanghai")


def _images(verbs: Verbs) -> None:
    columns = ("name", "purpose", "version", "cuda", "reference", "retired", "replaced_by", "description")
    _list(verbs, commands.list_of("images", *columns))
    made = _verb(verbs, "add", "put one into the catalogue", catalog.add, named="name")
    catalog.arguments(made)
    _key(made)
    catalog.arguments(_verb(verbs, "change", "change what is said of it", catalog.change, named="name"))
    gone = _verb(verbs, "retire", "nothing new starts from it", catalog.retire, named="name")
    gone.add_argument("--use", metavar="IMAGE", help="the one to use instead")


def _keys(verbs: Verbs) -> None:
    made = _verb(verbs, "add", "add a public key", ssh.add_key)
    made.add_argument("file", help="such as ~/.ssh/id_ed25519.pub; - reads standard input")
    made.add_argument("--name", default="", help="the key's own comment when left out")
    _key(made)
    _list(verbs, commands.list_of("ssh-keys", "name", "kind", "fingerprint", "last_used_at"))
    gone = _verb(verbs, "delete", "delete it", ssh.delete_key)
    gone.add_argument("name", help="its NAME or fingerprint")
    gone.add_argument("--yes", action="store_true", help="really")


def _volumes(verbs: Verbs) -> None:
    made = _verb(verbs, "create", "make one", commands.create_volume, named="name")
    made.add_argument("--size", required=True, help="such as 10Gi")
    made.add_argument("--queue")
    _key(made)
    _list(verbs, commands.list_of("volumes", "name", "state", "queue", "owner", "kind"), queue=True)
    _verb(verbs, "show", "all about one", commands.show_one("volumes"), named="name")
    _delete(verbs, "volumes")


def _flows(verbs: Verbs) -> None:
    made = _verb(verbs, "create", "save one from a file", commands.create_flow)
    made.add_argument("-f", "--file", required=True, help="YAML or JSON; - reads standard input")
    made.add_argument("--update", action="store_true", help="save the next version of the flow with this name")
    _key(made)
    _list(verbs, commands.list_of("flows", "name", "state", "queue", "owner"), queue=True)
    _verb(verbs, "show", "all about one", commands.show_one("flows"), named="name")
    run = _verb(verbs, "run", "start a run now", commands.run_flow, named="name")
    run.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")
    run.add_argument("--wait", action="store_true", help="until it is over; the exit status is the run's")
    run.add_argument("--logs", action="store_true", help="wait, and print the log as it grows")
    _key(run)
    _verb(verbs, "pause", "let no schedule fire", commands.act("flows", "pause"), named="name")
    _verb(verbs, "resume", "let schedules fire again", commands.act("flows", "resume"), named="name")
    _delete(verbs, "flows")


def _runs(verbs: Verbs) -> None:
    made = _list(verbs, commands.list_of("runs", "id", "name", "state", "created_at", "reason"), queue=True)
    made.add_argument("--flow", help="only of this flow")
    _verb(verbs, "log", "print its log", commands.run_log, named="id")
    _verb(verbs, "wait", "wait until it is over", commands.run_wait, named="id").add_argument(
        "--logs", action="store_true", help="print the log as it grows"
    )
    _verb(verbs, "cancel", "end it", commands.run_action("cancel"), named="id")
    _verb(verbs, "rerun", "run it again", commands.run_action("rerun"), named="id")
