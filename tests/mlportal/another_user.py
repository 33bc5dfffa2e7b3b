"""Running the checkout as somebody without any rights, from tests that run as root."""

import sys
from pathlib import Path

NOBODY = 61235
ROOT = Path(__file__).resolve().parents[2]

# For each folder that is closed to others: put an open one in its place that holds only what the portal needs from it.
# All of it is in a mount namespace of the process's own, and ends with it.
_OPEN = """
set -e
staging=$1; images=$2; closed=$3; shift 3
mount --bind "$images" "$staging/images"
for folder in $closed; do
    number=0
    for needed in "$@"; do
        case $needed in --) break ;; "$folder"/*) ;; *) continue ;; esac
        number=$((number + 1))
        mkdir -p "$staging/$number"
        mount --bind "$needed" "$staging/$number"
    done
    mount -t tmpfs -o mode=755 tmpfs "$folder"
    number=0
    for needed in "$@"; do
        case $needed in --) break ;; "$folder"/*) ;; *) continue ;; esac
        number=$((number + 1))
        mkdir -p "$needed"
        mount --bind "$staging/$number" "$needed"
    done
done
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def command(staging, images):
    """What becomes an ordinary user and then what follows; `images` is what that user finds at `staging`/images."""
    (staging / "images").mkdir(parents=True)
    needed = sorted(
        {str(ROOT), str(ROOT / ".venv"), str(Path(sys.prefix).resolve()), str(Path(sys.base_prefix).resolve())}
    )
    closed = sorted(
        {str(folder) for path in needed for folder in Path(path).parents if not folder.stat().st_mode & 0o001}
    )
    outermost = [folder for folder in closed if not any(folder.startswith(f"{other}/") for other in closed)]
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    opened = ("sh", "-c", _OPEN, "sh", str(staging), str(images), " ".join(outermost), *needed, "--")
    return ("unshare", "--mount", "--propagation", "private", *opened, *become)


def processes():
    """The ids of all processes that are that user's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == NOBODY:
                found.append(int(entry.name))
        except FileNotFoundError:
            continue  # it ended meanwhile
    return found
