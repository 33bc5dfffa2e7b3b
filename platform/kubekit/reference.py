"""An image's reference, taken apart as container registries do it.

The grammar is that of the distribution project (``distribution/reference``): a registry with an optional port, a path
of lower-case parts, a tag and a digest. A first part without a dot, a port or the name ``localhost`` belongs to the
path, and the registry is docker.io; there a single part stands below ``library/``. Of digests only SHA-256 is taken,
which is the one that every runtime knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kubekit.errors import SpecError
from kubekit.specs.checks import MAX_IMAGE_LENGTH

DOCKER_HUB = "docker.io"
MAX_PATH = 255
_HOST = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*(?::[0-9]{1,5})?", re.ASCII
)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)

#: What `parse` can find wrong, as the error's code; whoever shows it words it.
CODES = ("empty", "too_long", "scheme", "space", "upper_case", "bad_registry", "bad_path", "bad_tag", "bad_digest")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """``registry/path:tag@digest`` with nothing left out but tag and digest."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """Registry and path: what a prefix is compared with."""
        return f"{self.registry}/{self.path}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def text(self) -> str:
        """In full. A tag beside a digest is kept for readers; runtimes go by the digest."""
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{self.repository}{tag}{digest}"

    @property
    def is_pinned(self) -> bool:
        """Whether it means the same bytes for ever."""
        return bool(self.digest)


def parse(text: str) -> Reference:
    """Take a reference apart. Raises `SpecError` with one of `CODES`, at ``image``."""
    _require(bool(text), "empty", "a reference is needed")
    _require(len(text) <= MAX_IMAGE_LENGTH, "too_long", f"at most {MAX_IMAGE_LENGTH} characters")
    _require("://" not in text, "scheme", "an image's reference begins with the registry, without https://")
    _require(text.isascii() and text.isprintable() and " " not in text, "space", "only ASCII without spaces")
    rest, at, digest = text.partition("@")
    _require(not at or _DIGEST.fullmatch(digest) is not None, "bad_digest", "a digest is sha256: and 64 digits")
    head, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # the colon, where there is one, is that of a port
        head, colon, tag = rest, "", ""
    _require(not colon or _TAG.fullmatch(tag) is not None, "bad_tag", "a tag has 1 to 128 letters, digits, _, . and -")
    _require(head == head.lower(), "upper_case", "registry and path are in lower case")
    registry, path = _split(head)
    _require(_HOST.fullmatch(registry) is not None, "bad_registry", f"{registry[:80]!r} is not a registry's host")
    _require(all(_PART.fullmatch(part) for part in path.split("/")), "bad_path", f"{path[:80]!r} is not a path")
    _require(len(path) <= MAX_PATH, "too_long", f"a path has at most {MAX_PATH} characters")
    # Registries read 64 hexadecimal digits alone as the id of an image.
    _require(_HEX.fullmatch(head) is None, "bad_path", "this is an image's id, not its name")
    return Reference(registry=registry, path=path, tag=tag, digest=digest)


def _split(head: str) -> tuple[str, str]:
    first, slash, rest = head.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        registry, path = first, rest
    else:
        registry, path = DOCKER_HUB, head
    if registry == "index.docker.io":
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return registry, path


def parse_prefix(text: str) -> str:
    """What `allowed` takes: a registry, or the beginning of a path in it (``registry.example/team``).

    Raises `SpecError` as `parse` does.
    """
    plain = text.strip().rstrip("/")
    _require(bool(plain), "empty", "a registry is needed")
    _require("://" not in plain, "scheme", "a registry's host without https://")
    _require(plain == plain.lower(), "upper_case", "registry and path are in lower case")
    registry, slash, path = plain.partition("/")
    _require(_HOST.fullmatch(registry) is not None, "bad_registry", f"{registry[:80]!r} is not a registry's host")
    host = registry.partition(":")[0]
    _require("." in host or ":" in registry or host == "localhost", "bad_registry", "begin with the registry's host")
    good = not slash or all(_PART.fullmatch(part) for part in path.split("/"))
    _require(good and len(path) <= MAX_PATH, "bad_path", f"{path[:80]!r} is not a path")
    return plain


def allowed(reference: Reference, prefixes: Iterable[str]) -> bool:
    """Whether one of the prefixes covers it, by whole parts: ``r.example/a`` covers ``r.example/a/b``, not ``…/ab``."""
    return any(f"{reference.repository}/".startswith(f"{prefix}/") for prefix in prefixes)


def _require(condition: bool, code: str, message: str) -> None:
    if not condition:
        raise SpecError(code, "image", message)
