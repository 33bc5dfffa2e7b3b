"""Where the data of a pod's volumes lies on the host."""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localkube.node.agents import find_program
from localkube.quantity import parse
from localkube.status import Object
from localkube.store import Store

_SMALLEST_IMAGE: Final = 2 * 1024 * 1024
_JOURNAL_FROM: Final = 128 * 1024 * 1024
_LEAST_FREE: Final = 256 * 1024 * 1024
"""An image takes room of the machine's disk only as it is written. Where that ends while a pod writes, the kernel
stops the image's file system, which stays read-only until the pod is stopped: no pod starts so near to it."""


class VolumeError(RuntimeError):
    """A volume cannot be had yet, or at all; the text goes into a FailedMount event."""


@dataclass(frozen=True)
class Source:
    """What is mounted for one volume: a folder (`bind`), an image file with a file system (`loop`), or memory."""

    path: str
    kind: str
    size: int | None = None
    read_only: bool = False


class Volumes:
    """Folder of persistent data, one entry for each PersistentVolume, and what pods carry themselves.

    With `images` (root on a machine with loop devices) a claim is an ext4 image of its size, so a full volume answers
    ENOSPC; without it a folder that is measured when a pod starts.
    """

    def __init__(self, store: Store, folder: Path, *, images: bool) -> None:
        self._store, self._folder, self.images = store, folder, images
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def prepare(self, pod: Object, folder: Path, uid: int | None) -> dict[str, Source]:
        """Make every volume of the pod ready; `uid` is who shall own the data. Raises VolumeError. May take a while."""
        sources: dict[str, Source] = {}
        for volume in pod["spec"].get("volumes", []):
            name = volume["name"]
            place = folder / "volumes" / name
            if "persistentVolumeClaim" in volume:
                source = self._claim(pod, volume["persistentVolumeClaim"]["claimName"], uid)
                read_only = bool(volume["persistentVolumeClaim"].get("readOnly"))
                sources[name] = dataclasses.replace(source, read_only=read_only)
            elif volume.get("emptyDir", {}).get("medium") == "Memory":
                limit = volume["emptyDir"].get("sizeLimit")
                sources[name] = Source("", "tmpfs", parse(limit).value if limit else None)
            elif "emptyDir" in volume:
                place.mkdir(parents=True, exist_ok=True)
                _own(place, uid, 0o777)
                sources[name] = Source(str(place), "bind")
            else:
                self.project(pod, volume, place, uid)
                sources[name] = Source(str(place), "bind")
        return sources

    def _claim(self, pod: Object, claim: str, uid: int | None) -> Source:
        found = self._store.peek("persistentvolumeclaims", pod["metadata"]["namespace"], claim)
        if found is None:
            raise VolumeError(f'persistentvolumeclaim "{claim}" not found')
        volume = found["spec"].get("volumeName")
        if found.get("status", {}).get("phase") != "Bound" or not volume:
            raise VolumeError(f'persistentvolumeclaim "{claim}" is not bound')
        size = max(_SMALLEST_IMAGE, parse(found["spec"]["resources"]["requests"]["storage"]).value)
        image, directory = self._folder / f"{volume}.img", self._folder / volume
        if image.exists() or (self.images and not directory.exists()):
            return self._image(image, size, uid)
        directory.mkdir(exist_ok=True)
        _own(directory, uid, 0o755)
        used = _used(directory)
        if used > size:
            raise VolumeError(
                f'volume "{claim}" holds {used} bytes, more than its size of {size}; this machine cannot limit a '
                "folder while it is written, so the next start is refused: enlarge the claim"
            )
        return Source(str(directory), "bind")

    def _image(self, image: Path, size: int, uid: int | None) -> Source:
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_FREE:
            raise VolumeError(
                f"no space left on the machine's disk: {free >> 20} MiB are free where volumes lie, and a pod starts "
                f"with {_LEAST_FREE >> 20} MiB at least. It goes on by itself when there is room"
            )
        if not image.exists():
            partial = image.with_suffix(".part")
            with partial.open("wb") as file:
                file.truncate(size)
            owner = f"root_owner={uid or 0}:{uid or 0}"
            journal = ["-J", "size=8"] if size >= _JOURNAL_FROM else ["-O", "^has_journal"]
            _tool("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", *journal, "-E", f"nodiscard,{owner}", str(partial))
            partial.rename(image)
        elif image.stat().st_size < size and not _attached(image):
            os.truncate(image, size)
            _tool("e2fsck", "-f", "-y", str(image), accepted=(0, 1))
            _tool("resize2fs", str(image))
        return Source(str(image), "loop")

    def released(self) -> bool:
        """Whether no loop device holds an image any more; the kernel lets go a moment after the last process."""
        return not any(_attached(image) for image in self._folder.glob("*.img"))

    def remove(self, volume: str) -> None:
        """Delete the data of a PersistentVolume that is gone."""
        (self._folder / f"{volume}.img").unlink(missing_ok=True)
        shutil.rmtree(self._folder / volume, ignore_errors=True)

    def keep_only(self, volumes: set[str]) -> None:
        """Delete data of volumes that the store no longer knows (localkube was killed in between)."""
        for entry in self._folder.iterdir():
            name = entry.name.removesuffix(".img")
            if name not in volumes:
                self.remove(name)

    def project(self, pod: Object, volume: Object, place: Path, uid: int | None) -> None:
        """Write the files of a secret or configMap volume where they differ. Raises VolumeError."""
        kind = "secret" if "secret" in volume else "configMap"
        source = volume[kind]
        name = source.get("secretName") or source.get("name", "")
        wanted = self._data(kind, pod["metadata"]["namespace"], name)
        if wanted is None:
            text = f'{kind.lower()} "{name}" not found'
            raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {text}')
        place.mkdir(parents=True, exist_ok=True)
        for path in place.iterdir():
            if path.name not in wanted:
                path.unlink()
        for key, data in wanted.items():
            _write(place / key, data, source.get("defaultMode", 0o644), uid)
        _own(place, uid, 0o755)

    def _data(self, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """The decoded content of a Secret or ConfigMap; None when there is none of that name."""
        found = self._store.peek("secrets" if kind == "secret" else "configmaps", namespace, name)
        if found is None:
            return None
        encoded = found.get("data" if kind == "secret" else "binaryData") or {}
        plain = found.get("data") or {} if kind == "configMap" else {}
        decoded = {key: base64.b64decode(value) for key, value in encoded.items()}
        return decoded | {key: value.encode() for key, value in plain.items()}


def loop_devices_work(folder: Path, run: Callable[..., Any] = subprocess.run) -> bool:
    """Whether an image file can be mounted here: root, loop devices and the tools. Tries it, and leaves nothing."""
    if os.geteuid() != 0 or not all(find_program(name) for name in ("mke2fs", "losetup", "mount")):
        return False
    image = folder / ".loop-probe"
    try:
        with image.open("wb") as file:
            file.truncate(_SMALLEST_IMAGE)
        found = run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
        if found.returncode:
            return False
        run(["losetup", "--detach", found.stdout.strip()], capture_output=True, check=False)
        return True
    finally:
        image.unlink(missing_ok=True)


def _attached(image: Path) -> bool:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().strip() == str(image):
                return True
        except OSError:
            continue
    return False


def _tool(*command: str, accepted: tuple[int, ...] = (0,)) -> None:
    program = find_program(command[0])
    if program is None:
        raise VolumeError(f"{command[0]} is missing: install e2fsprogs")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode not in accepted:
        raise VolumeError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def _own(path: Path, uid: int | None, mode: int) -> None:
    if path.stat().st_mode & 0o7777 != mode:
        path.chmod(mode)
    if uid is not None and path.stat().st_uid != uid:
        os.chown(path, uid, uid)


def _write(path: Path, data: bytes, mode: int, uid: int | None) -> None:
    """Replace a file in one step; nothing happens when it is already so."""
    if path.exists() and path.read_bytes() == data:
        return
    temporary = path.with_name(f".{path.name}.new")
    temporary.touch(mode=0o600)
    temporary.write_bytes(data)
    _own(temporary, uid, mode)
    temporary.rename(path)


def _used(folder: Path) -> int:
    total = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            total += Path(directory, name).lstat().st_blocks * 512
    return total
