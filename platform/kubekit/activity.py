"""What goes on inside a running instance: one look, by one command in its pod, and what two looks say together.

The command is carried by the portal and needs nothing of the image but a shell; where the image has Jupyter, its Python
asks Jupyter as well. A look gives marks, not ages: the time stamps of terminals and kernels are compared with those of
the look before, as texts, so that no clock that is wrong or was set, here or on the node, makes anything look idle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kubekit.errors import BadAnswer
from kubekit.streams import Streams

TIMEOUT_S = 20.0
LIMIT_BYTES = 64 << 10
#: Used of one CPU between two looks, by all programs together. JupyterLab, VS Code and open tabs by themselves stay
#: below a tenth of it.
CPU_SHARE = 0.05
#: Per cent of a GPU at the moment of the look.
GPU_SHARE = 5
#: Ticks of a CPU's time in /proc, on every Linux that Kubernetes runs on.
TICKS_PER_S = 100

_JUPYTER = r"""
import json, os, urllib.request
live = os.environ.get("MLPORTAL_LIVE", "/run/mlportal")
mounted = os.environ.get("MLPORTAL_SECRETS", "/etc/mlportal")
key = ""
for place in (live + "/key", mounted + "/key"):
    try:
        key = open(place).read().strip()
        break
    except OSError:
        pass
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
where = "http://127.0.0.1:" + os.environ.get("MLPORTAL_PORT", "8888") + "/api/"
for name, fields in (("kernels", ("id", "last_activity", "execution_state")), ("terminals", ("name", "last_activity"))):
    request = urllib.request.Request(where + name, headers={"Authorization": "token " + key})
    found = json.load(opener.open(request, timeout=8))
    print(name + "=" + json.dumps(sorted([str(one.get(field)) for field in fields] for one in found)))
"""

#: Prints ``name=value`` lines. What a process has used comes with what its ended children used; other users' sshd
#: processes and the command's own are left out.
_LOOK = r"""
PATH="$PATH:/opt/mlportal/busybox"
cpu=0 ssh=0
for place in /proc/[0-9]*; do
  [ "${place#/proc/}" = "$$" ] && continue
  { read -r line < "$place/stat"; } 2>/dev/null || continue
  name=${line#*(}
  name=${name%)*}
  case ${line##*) } in [A-Za-z]\ *) ;; *) continue ;; esac
  set -- "$1" ${line##*) }
  cpu=$((cpu + ${13} + ${14} + ${15} + ${16}))
  case $name in
    sshd|sshd-session)
      title=$(tr '\0' ' ' < "$place/cmdline" 2>/dev/null)
      case $title in
        *\[*) ;;
        "sshd: /"*) ;;
        sshd:\ *|sshd-session:\ *) ssh=$((ssh + 1)) ;;
      esac ;;
  esac
done
echo "cpu=$cpu"
echo "ssh=$ssh"
if command -v stat >/dev/null 2>&1; then
  typed= shown=
  for place in /dev/pts/[0-9]*; do
    [ -c "$place" ] || continue
    typed="$typed ${place##*/}:$(stat -c %X "$place" 2>/dev/null)"
    shown="$shown ${place##*/}:$(stat -c %Y "$place" 2>/dev/null)"
  done
  echo "typed=$typed"
  echo "shown=$shown"
  beat=${HOME:-/root}/.local/share/code-server/heartbeat
  [ -e "$beat" ] && echo "editor=$(stat -c %Y "$beat" 2>/dev/null)"
fi
if command -v nvidia-smi >/dev/null 2>&1; then
  used=$(timeout 5 nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null | tr '\n' ' ')
  [ -n "$used" ] && echo "gpu=$used"
fi
python=
if [ -x /opt/venv/bin/jupyter-lab ]; then
  python=/opt/venv/bin/python
elif [ -r "${MLPORTAL_LIVE:-/run/mlportal}/entrances" ]; then
  while read -r kind value; do
    [ "$kind" = python ] && python=$value
  done < "${MLPORTAL_LIVE:-/run/mlportal}/entrances"
fi
if [ -n "$python" ]; then
  "$python" -I -c "$1" 2>/dev/null || echo "jupyter=silent"
fi
exit 0
"""

_TELL = r"""
for place in /dev/pts/[0-9]*; do
  [ -c "$place" ] && [ -w "$place" ] && printf '\r\n\r\n%s\r\n\r\n' "$1" > "$place"
done 2>/dev/null
exit 0
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look found; None for what this instance cannot tell.

    ``cpu`` in ticks that all programs have used so far, ``gpu`` per cent of the busiest, ``ssh`` sessions. The texts
    only change when something happened: ``typed`` and ``shown`` in terminals of any kind, ``editor`` VS Code's
    heartbeat, ``kernels`` and ``terminals`` as Jupyter tells them, ``busy`` kernels that compute at this moment.
    """

    cpu: int | None = None
    gpu: int | None = None
    ssh: int | None = None
    typed: str | None = None
    shown: str | None = None
    editor: str | None = None
    kernels: str | None = None
    busy: int | None = None
    terminals: str | None = None

    def before_a_message(self) -> Look:
        """To compare the next look with, when the portal itself writes to the terminals after this one."""
        return replace(self, shown=None, terminals=None)


def standing(look: Look) -> frozenset[str]:
    """What one look by itself says is going on: any of ``kernels ssh gpu``."""
    found = {"kernels": look.busy, "ssh": look.ssh, "gpu": (look.gpu or 0) >= GPU_SHARE}
    return frozenset(name for name, is_so in found.items() if is_so)


def activity(before: Look, after: Look, *, elapsed_s: float) -> frozenset[str]:
    """What was going on between two looks ``elapsed_s`` apart: any of ``kernels terminals editor ssh cpu gpu``.

    What only one of the looks knows says nothing. Processes that vanished with the time they had used count as use.
    """
    found = set(standing(after))
    if _changed(before.kernels, after.kernels):
        found.add("kernels")
    pairs = ((before.typed, after.typed), (before.shown, after.shown), (before.terminals, after.terminals))
    if any(_changed(*pair) for pair in pairs):
        found.add("terminals")
    # A heartbeat that begins is one; other marks are there from the first look on.
    if after.editor is not None and after.editor != before.editor:
        found.add("editor")
    if before.cpu is not None and after.cpu is not None:
        used = after.cpu - before.cpu
        if used < 0 or used >= CPU_SHARE * TICKS_PER_S * elapsed_s:
            found.add("cpu")
    return frozenset(found)


def _changed(before: str | None, after: str | None) -> bool:
    return before is not None and after is not None and before != after


async def look(streams: Streams, namespace: str, pod: str, container: str, *, shell: str = "/bin/sh") -> Look:
    """One look, by the image's shell or another one.

    Raises `KubeError` when nothing, or only a part of what there is, could be found out.
    """
    command = (shell, "-c", _LOOK, "mlportal-look", _JUPYTER)
    code, output, errors = await streams.run(
        namespace, pod, container, command, timeout_s=TIMEOUT_S, limit_bytes=LIMIT_BYTES
    )
    if code != 0:
        said = errors.decode("utf-8", "replace").strip()[-200:]
        raise BadAnswer(f"the instance could not be looked into (exit code {code}): {said}", status=0)
    return parse(output.decode("utf-8", "replace"))


def parse(text: str) -> Look:
    """The lines of the command. Raises `BadAnswer` when they are not all there or not as expected."""
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if lines.get("jupyter") == "silent":
        raise BadAnswer("JupyterLab did not say what goes on in it", status=0)
    try:
        kernels = json.loads(lines["kernels"]) if "kernels" in lines else None
        return Look(
            cpu=int(lines["cpu"]),
            ssh=int(lines["ssh"]),
            gpu=max((int(one) for one in lines.get("gpu", "").split() if one.isdigit()), default=None),
            typed=lines.get("typed"),
            shown=lines.get("shown"),
            editor=lines.get("editor"),
            kernels=None if kernels is None else _marks([row[:2] for row in kernels]),
            busy=None if kernels is None else sum(row[2] == "busy" for row in kernels),
            terminals=lines.get("terminals"),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadAnswer(f"what goes on in the instance was not understood: {error!r}", status=0) from error


def _marks(rows: Sequence[Sequence[str]]) -> str:
    return json.dumps(rows)


async def tell(
    streams: Streams, namespace: str, pod: str, container: str, text: str, *, shell: str = "/bin/sh"
) -> None:
    """Write a line to every terminal of the instance's user, as ``wall`` does. Raises `KubeError`."""
    command = (shell, "-c", _TELL, "mlportal-tell", text)
    await streams.run(namespace, pod, container, command, timeout_s=TIMEOUT_S, limit_bytes=LIMIT_BYTES)
