"""Image references become virtual environments, built from the files that the Dockerfile beside them uses."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localkube.node import editors
from localkube.node.sandbox import Bind, system_binds

PATH: Final = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FORMAT: Final = "4"
"""Part of every content hash; raise it when the way of building changes."""
_PASSED_ON: Final = (
    "UV_",
    "SSL_CERT_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)

_LIBRARIES: Final = Path("/etc/ld.so.cache")

Progress = Callable[[str], None]


class ImageError(RuntimeError):
    """The image cannot be had; the text is the one a kubelet puts into its event."""


@dataclass(frozen=True)
class Source:
    """One line of the table, with its files found."""

    reference: str
    folder: Path
    entrypoint: Path | None
    packages: tuple[Path, ...]
    command: tuple[str, ...]
    programs: tuple[Path, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    editor: Path | None = None

    @property
    def requirements(self) -> Path:
        return self.folder / "requirements.txt"


@dataclass(frozen=True)
class Image:
    """A built image: `venv` is what containers see at /opt/venv."""

    reference: str
    digest: str
    venv: Path
    python: Path
    library_cache: Path
    command: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links inside: where each is, and what it leads to."""
    editor: Path | None = None
    """What containers see at /opt/code-server, where it is installed."""

    @property
    def binds(self) -> tuple[Bind, ...]:
        found = (
            Bind(str(self.python), "/opt/python"),
            Bind(str(self.venv), "/opt/venv"),
            Bind(str(self.library_cache), "/etc/ld.so.cache"),
        )
        return (*found, Bind(str(self.editor), editors.PLACE)) if self.editor else found


def normalize(reference: str) -> str:
    """The reference as the runtime names it: `python` is docker.io/library/python:latest."""
    name, at, digest = reference.partition("@")
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    if not at and ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return name + at + digest


def not_found(reference: str) -> ImageError:
    """What containerd says of a reference that no registry has."""
    full = normalize(reference)
    return ImageError(
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{full}": '
        f'failed to resolve reference "{full}": {full}: not found'
    )


class Images:
    """The table and the cache. `table` None leaves every reference unknown."""

    def __init__(self, table: Path | None, cache: Path) -> None:
        self._cache = cache
        self._sources: dict[str, Source] = {}
        self._building: dict[str, asyncio.Lock] = {}
        if table:
            with table.open("rb") as file:
                for reference, entry in tomllib.load(file)["images"].items():
                    folder = table.parent / entry["folder"]
                    self._sources[normalize(reference)] = Source(
                        reference,
                        folder,
                        folder / entry["entrypoint"] if "entrypoint" in entry else None,
                        tuple(folder / name for name in entry.get("packages", [])),
                        tuple(entry["command"]),
                        tuple(folder / name for name in entry.get("programs", [])),
                        tuple(sorted(entry.get("links", {}).items())),
                        folder / entry["editor"] if "editor" in entry else None,
                    )

    @property
    def references(self) -> list[str]:
        return [source.reference for source in self._sources.values()]

    def source(self, reference: str) -> Source:
        """Raises ImageError for a reference that the table lacks."""
        found = self._sources.get(normalize(reference))
        if found is None:
            raise not_found(reference)
        return found

    def present(self, reference: str) -> bool:
        """Whether a container can start from it at once."""
        found = self._sources.get(normalize(reference))
        return found is not None and (self._cache / _content_hash(found) / "ready").exists()

    async def pull(self, reference: str, progress: Progress) -> Image:
        """The image, built first when the cache lacks it. Raises ImageError."""
        source = self.source(reference)
        content = _content_hash(source)
        place = await self._made(content, lambda work: self._build(source, work / "venv", progress))
        base = Path(sys.base_prefix)
        library_cache = _LIBRARIES
        if base != Path("/usr") and any(base.glob("lib/libpython3*.so*")):  # noqa: ASYNC240 - one folder
            library_cache = await self._library_cache(base)
        editor = editors.installed(self._cache, source.editor) if source.editor else None
        return Image(
            reference,
            f"sha256:{content}",
            place / "venv",
            base,
            library_cache,
            source.command,
            source.links,
            editor,
        )

    def prune(self, in_use: str) -> None:
        """Remove what no reference of the table leads to any more, but nothing whose key occurs in `in_use`."""
        needed: set[str] = set()
        for source in self._sources.values():
            needed |= {_content_hash(source), f"layer-{_hash_of(source.requirements)}"}
            if source.editor:
                needed.add(editors.key_of(source.editor))
        for entry in self._cache.glob("*") if self._cache.is_dir() else ():
            key = entry.name.partition(".")[0]
            if not key.startswith("ld-") and key not in needed and key not in in_use:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    async def _made(self, key: str, fill: Callable[[Path], Awaitable[None]]) -> Path:
        """A folder of the cache, filled if it is not there; half-filled ones never show."""
        place = self._cache / key
        if (place / "ready").exists():
            return place
        self._cache.mkdir(parents=True, exist_ok=True)
        async with self._building.setdefault(key, asyncio.Lock()), _file_lock(self._cache / f"{key}.lock"):
            if (place / "ready").exists():
                return place
            for leftover in self._cache.glob(f"{key}.build-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            work = self._cache / f"{key}.build-{os.getpid()}"
            try:
                (work / "venv").mkdir(parents=True)
                await fill(work)
                (work / "ready").touch()
                shutil.rmtree(place, ignore_errors=True)
                work.rename(place)
            finally:
                await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
        return place

    async def _build(self, source: Source, venv: Path, progress: Progress) -> None:
        """The requirements are a layer of their own, so that a change of the portal's package builds in a moment."""
        key = f"layer-{_hash_of(source.requirements)}"
        base = await self._made(key, lambda work: self._install(source, work / "venv", progress))
        link = functools.partial(shutil.copytree, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
        await asyncio.to_thread(link, base / "venv", venv)
        packages = next(venv.glob("lib/python3*/site-packages"))  # noqa: ASYNC240 - one folder
        for package in source.packages:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, packages / package.name, ignore=ignore, dirs_exist_ok=True)
        programs = {path: f"mlportal-{path.name}" for path in source.programs}
        if source.entrypoint:
            programs[source.entrypoint] = "mlportal-entrypoint"
        for path, name in programs.items():
            target = venv / "bin" / name
            shutil.copyfile(path, target)
            target.chmod(0o755)
        if source.packages:
            names = " ".join(f"{packages.relative_to(venv)}/{package.name}" for package in source.packages)
            await self._run(source, f"cd /opt/venv && bin/python -m compileall -q {names}", venv, lambda: None)

    async def _install(self, source: Source, venv: Path, progress: Progress) -> None:
        lines = source.requirements.read_text().splitlines()
        elsewhere = ("== 'win32'", "== 'darwin'", "== 'never'")
        wanted = sum(1 for line in lines if line[:1].isalnum() and not line.endswith(elsewhere))
        script = (
            "set -e\n/opt/uv venv -q --allow-existing --python /opt/python/bin/python3 /opt/venv\n"
            "/opt/uv pip install -q --no-build --no-deps --compile-bytecode --python /opt/venv/bin/python"
            " -r /opt/requirements.txt\nrm -rf /opt/venv/.cache\n"
        )
        await self._run(source, script, venv, lambda: progress(_count(venv, wanted)))

    async def _run(self, source: Source, script: str, venv: Path, tick: Callable[[], None]) -> None:
        uv = find_uv()
        if uv is None:
            raise ImageError(f'failed to build image "{source.reference}": the program uv is missing: pip install uv')
        binds = [Bind(uv, "/opt/uv"), Bind(str(source.requirements), "/opt/requirements.txt")]
        binds += [Bind(str(venv), "/opt/venv", read_only=False), Bind(sys.base_prefix, "/opt/python")]
        env = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        if "PIP_INDEX_URL" in os.environ:
            env.setdefault("UV_DEFAULT_INDEX", os.environ["PIP_INDEX_URL"])
        env.setdefault("UV_SYSTEM_CERTS", "1")  # a company's proxy may have a certificate of its own
        env |= {"HOME": "/opt/venv", "PATH": PATH, "UV_CACHE_DIR": "/opt/venv/.cache", "UV_NO_PROGRESS": "1"}
        env["LD_LIBRARY_PATH"] = "/opt/python/lib"  # the loader's cache with that folder is for containers
        extra = [Bind(env[name], env[name]) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in env]
        command = builder_command([*binds, *extra], env, ["/bin/sh", "-c", script])
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        done = asyncio.create_task(process.communicate())
        try:
            while not (await asyncio.wait([done], timeout=1.0))[0]:
                tick()
        except asyncio.CancelledError:
            process.kill()
            await done
            raise
        if process.returncode:
            text = " ".join(done.result()[0].decode(errors="replace").split())
            full = normalize(source.reference)
            raise ImageError(
                f'rpc error: code = Unknown desc = failed to pull and unpack image "{full}": '
                f"building its virtual environment failed: {text[-400:]}"
            )

    async def _library_cache(self, base: Path) -> Path:
        """The loader's cache for inside: the host's and the folder of the interpreter's own libpython.

        An environment variable would not do: programs clear theirs, sshd above all.
        """
        stamp = f"{base} {_LIBRARIES.stat().st_mtime_ns if _LIBRARIES.exists() else 0}"
        place = self._cache / f"ld-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
        cache = place / "ld.so.cache"
        if cache.exists():
            return cache
        work = place.with_name(f"{place.name}.{os.getpid()}")
        work.mkdir(parents=True, exist_ok=True)
        # First, because the distribution may have a libpython of the same name.
        (work / "ld.so.conf").write_text("/opt/python/lib\ninclude /etc/ld.so.conf\n")
        binds = [Bind(str(base), "/opt/python"), Bind(str(work), "/opt/out", read_only=False)]
        script = "$(command -v ldconfig) -X -f /opt/out/ld.so.conf -C /opt/out/ld.so.cache"
        process = await asyncio.create_subprocess_exec(
            *builder_command(binds, {"PATH": PATH}, ["/bin/sh", "-c", script]), stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
        if process.returncode:
            raise ImageError(f"ldconfig failed: {errors.decode(errors='replace').strip()[-300:]}")
        if not place.exists():
            work.rename(place)
        return cache


def builder_command(binds: list[Bind], env: dict[str, str], argv: list[str]) -> list[str]:
    """bubblewrap for building: the host's network and programs, and nothing writable but the given folders."""
    command = ["bwrap", "--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", "--die-with-parent"]
    command += ["--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - inside the sandbox
    system, links = system_binds()
    for bind in system:
        command += ["--ro-bind", bind.source, bind.target]
    for target, link in links:
        command += ["--symlink", target, link]
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/uv"):
        command += ["--ro-bind-try", name, name]
    for bind in binds:
        command += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
    command.append("--clearenv")
    for name, value in env.items():
        command += ["--setenv", name, value]
    return [*command, "--", *argv]


def find_uv() -> str | None:
    """uv beside the running interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _hash_of(*files: Path, relative_to: Path | None = None) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {sys.version} {platform.machine()}".encode())
    for path in files:
        digest.update(f"\0{path.relative_to(relative_to or path.parent)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _content_hash(source: Source) -> str:
    files = [source.requirements, *([source.entrypoint] if source.entrypoint else []), *source.programs]
    for package in source.packages:
        files += sorted(package.rglob("*.py"))
    return _hash_of(*files, relative_to=source.folder)


def _count(venv: Path, wanted: int) -> str:
    installed = sum(1 for _ in venv.glob("lib/python3*/site-packages/*.dist-info"))
    if installed:
        return f"{installed} of {wanted} packages installed"
    fetched = sum(1 for _ in venv.glob(".cache/archive-*/*"))
    return f"{fetched} of {wanted} packages fetched"


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    """Exclusive among processes: two localkubes may share a cache."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.2)
        yield
