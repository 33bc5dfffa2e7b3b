"""Which apps the portal has, where their pages are mounted, and which of them speak web socket."""

from __future__ import annotations

from mlportal.paths import ROOT

APPS = ("core", "clusters", "tenants", "catalog", "storage", "alerts", "instances", "flows")
"""In the order of their layers: an app may import those before it."""


def present() -> tuple[str, ...]:
    """The names of the apps whose folder is there."""
    return tuple(name for name in APPS if (ROOT / "apps" / name / "apps.py").is_file())


def having(module: str) -> tuple[str, ...]:
    """Dotted names of `apps.<name>.<module>` for the apps that have such a module."""
    return tuple(f"apps.{name}.{module}" for name in present() if (ROOT / "apps" / name / f"{module}.py").is_file())
