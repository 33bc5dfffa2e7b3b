"""Browser libraries from node_modules: only the files listed here are served, under /static/lib/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

from mlportal.paths import ROOT

MODULES = ROOT / "node_modules"
FILES = {
    "lib/htmx.min.js": "htmx.org/dist/htmx.min.js",
    "lib/tabler.min.css": "@tabler/core/dist/css/tabler.min.css",
    "lib/tabler.min.js": "@tabler/core/dist/js/tabler.min.js",
    "lib/inter.woff2": "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2",
}
"""Name in static files -> file in node_modules."""


class _PackageStorage(FileSystemStorage):
    """Gives the listed files under the names that pages use."""

    def path(self, name: str) -> str:
        return str(MODULES / FILES[name])

    def exists(self, name: str) -> bool:
        return name in FILES and (MODULES / FILES[name]).is_file()


class PackageFinder(BaseFinder):
    """Staticfiles finder for the listed files."""

    storage = _PackageStorage(location=MODULES)

    def check(self, **_kwargs: Any) -> list[Any]:
        """Nothing to check: set-up installs the packages before Django starts."""
        return []

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> str | list[str]:  # type: ignore[override]
        """The file's path, or an empty list."""
        if not self.storage.exists(path):
            return []
        found = self.storage.path(path)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        """All listed files."""
        return ((name, self.storage) for name in FILES if self.storage.exists(name))


class ManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Hashed names, so that browsers keep files for ever. Source maps are not served, so references to them stay."""

    manifest_strict = False
    patterns = (("*.css", (r"""(?P<matched>url\((?P<quote>['"]{0,1})\s*(?P<url>.*?)(?P=quote)\))""",)),)
