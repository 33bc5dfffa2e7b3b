"""The portal's package for Jupyter lies beside its Dockerfile, not on the path of this repository."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture(scope="session")
def tickets() -> ModuleType:
    """mlportal_jupyter.tickets."""
    return _loaded("tickets")


@pytest.fixture(scope="session")
def guesses() -> ModuleType:
    """mlportal_jupyter.guesses."""
    return _loaded("guesses")


@pytest.fixture(scope="session")
def origins() -> ModuleType:
    """mlportal_jupyter.origins."""
    return _loaded("origins")


def _loaded(name: str) -> ModuleType:
    """A module of mlportal_jupyter by its path: the package itself imports Jupyter."""
    path = DOCKER / "dev-base" / "mlportal_jupyter" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"mlportal_jupyter_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
