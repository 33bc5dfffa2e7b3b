"""Fixtures: an image that needs no download, and a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localkube.node.images import Images
from tests.localkube.node.support import Node, leftovers


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one image, `test/python:1`: a bare virtual environment."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "bare").mkdir()
    (folder / "bare" / "requirements.txt").write_text("")
    table = folder / "images.toml"
    table.write_text('[images."test/python:1"]\nfolder = "bare"\ncommand = ["python3"]\n')
    return table


@pytest.fixture(scope="session")
def image_cache(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Path:
    """A cache with the image built: no test waits for that."""
    cache = tmp_path_factory.mktemp("image-cache")
    asyncio.run(Images(images, cache).pull("test/python:1", lambda _text: None))
    return cache


@pytest.fixture
async def node(tmp_path: Path, images: Path, image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setenv("LOCALKUBE_IMAGE_CACHE", str(image_cache))
    made = Node(tmp_path, images)
    await made.start()
    yield made
    await made.stop()
    assert leftovers(tmp_path) == []
