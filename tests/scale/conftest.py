"""A portal on a real API server with thousands of simulated nodes. See ``test_scale.py`` for how to run it.

These tests take minutes and a cluster of their own, so they are collected only when ``MLPORTAL_TEST_NODES`` says how
many nodes the cluster of ``KUBECONFIG`` has; with fewer they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scale.place import Place

collect_ignore_glob = [] if os.environ.get("MLPORTAL_TEST_NODES") else ["test_*.py"]
_figures: list[str] = []


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The portal with its 200 queues and 1,000 running instances, among 5,000 pods."""
    kubeconfig = Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")
    found = Place(kubeconfig, tmp_path_factory.mktemp("scale"))
    found.require_nodes(int(os.environ["MLPORTAL_TEST_NODES"]))
    try:
        found.fill(_figures.append)
        yield found
    finally:
        found.close()


@pytest.fixture
def say() -> Any:
    """Keep a figure for the end of the run."""
    return _figures.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures, whatever became of the tests."""
    for line in _figures:
        terminalreporter.write_line(f"scale: {line}")
