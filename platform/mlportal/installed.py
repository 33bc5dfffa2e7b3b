"""Which apps the portal has, where their pages are mounted, and which of them speak web socket."""

from __future__ import annotations

from mlportal.paths import ROOT

APPS = ("core", "clusters", "tenants", "catalog", "storage", "alerts", "instances", "flows")
"""In the order of their layers: an app may import those before it."""


def having(module: str) -> tuple[str, ...]:
    """Dotted names of `apps.<name>.<module>` for the apps that have such a module."""
    return tuple(f"apps.{name}.{module}" for name in APPS if (ROOT / "apps" / name / f"{module}.py").is_file())
