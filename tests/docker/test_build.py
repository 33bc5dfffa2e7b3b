"""docker/build: what is built, from what, and when it is not built again. No builder runs here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docker.conftest import DOCKER

Tags = dict[str, str]

BUILDER = """#!/bin/sh
echo "$0 $*" >> "$CALLS"
case "$1" in
inspect) for last; do :; done; grep -qx "$last" "$THERE" && echo '{"OCIv1": {"history": [{"created_by": "RUN"}]}}' ;;
build) while [ $# -gt 1 ]; do [ "$1" = --tag ] && echo "$2" >> "$THERE"; shift; done; ls "$1" >> "$CALLS" ;;
images) [ $# = 4 ] && echo "1 MB" || { cat "$THERE"; echo docker.io/mlportal/python:1; } ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the folder, and a stand-in for what the portal's image is made of."""
    shutil.copytree(DOCKER, tmp_path / "docker")
    for name in ("manage.py", "requirements.txt", "package.json", "package-lock.json"):
        (tmp_path / name).write_text(name)
    for name in ("static", "templates", "platform", "apps"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path


@pytest.fixture
def build(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The script with a builder that only notes what it is asked; its calls are in `calls` beside it."""
    folder = tmp_path_factory.mktemp("builder")
    (folder / "buildah").write_text(BUILDER)
    (folder / "buildah").chmod(0o755)
    (folder / "there").touch()

    def run(*words: str, status: int = 0, **environ: str) -> str:
        (folder / "calls").write_text("")
        kept = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "THERE": str(folder / "there"),
            "CALLS": str(folder / "calls"),
        }
        script = [sys.executable, str(checkout / "docker" / "build"), *words]
        done = subprocess.run(script, env={**kept, **environ}, capture_output=True, text=True, timeout=90)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr + (folder / "calls").read_text()

    return run


def tags(text: str) -> Tags:
    return dict(line.split() for line in text.splitlines())


def test_an_image_is_built_once_and_again_when_a_file_of_it_changes(checkout: Path, build: Callable[..., str]) -> None:
    assert "buildah build" in build("task-base")
    again = build("task-base")
    assert "unchanged" in again and "buildah build" not in again
    with (checkout / "docker" / "task-base" / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert "buildah build" in build("task-base")


def test_every_change_of_an_input_changes_the_tag_and_nothing_else_does(
    checkout: Path, build: Callable[..., str]
) -> None:
    names = ("portal", "task-base", "dev-base", "dev-pytorch-cpu", "dev-pytorch-gpu", "trial-data")
    before = tags(build("--list", *names))
    assert len(set(before.values())) == len(names)
    (checkout / "README.md").write_text("no input of any image")
    (checkout / "apps" / "__pycache__").mkdir()
    (checkout / "apps" / "__pycache__" / "x.pyc").write_text("made by running")
    os.utime(checkout / "apps" / "file", (1, 1))
    assert tags(build("--list", *names)) == before
    (checkout / "apps" / "file").write_text("changed")
    after = tags(build("--list", *names))
    assert {name for name in names if after[name] != before[name]} == {"portal"}
    (checkout / "docker" / "dev-base" / "entrypoint").chmod(0o755)
    later = tags(build("--list", *names))
    assert {name for name in names if later[name] != after[name]} == {"dev-base", "dev-pytorch-cpu", "dev-pytorch-gpu"}


def test_another_base_or_argument_is_another_image(build: Callable[..., str]) -> None:
    plain = tags(build("--list", "dev-base", "task-base"))
    other = tags(build("--list", "dev-base", "task-base", PYTHON_IMAGE="company/python:3.11"))
    assert not set(plain.values()) & set(other.values())
    editor = tags(build("--list", "dev-base", "task-base", CODE_SERVER="4.1.0"))
    assert editor["dev-base"] != plain["dev-base"] and editor["task-base"] == plain["task-base"]


def test_the_builder_gets_the_companys_options_the_base_and_exactly_the_files_that_count(
    checkout: Path, build: Callable[..., str]
) -> None:
    (checkout / "secrets.txt").write_text("not for the image")
    text = build(
        "portal",
        BUILD_ARGS="--network host --volume '/a b:/a b:ro'",
        PYTHON_IMAGE="base:1",
        IMAGE_PREFIX="registry.test/ml",
    )
    call = next(line for line in text.splitlines() if "buildah build" in line)
    assert "--network host --volume /a b:/a b:ro --build-arg PYTHON_IMAGE=base:1" in call
    assert "--tag registry.test/ml/portal:" in call
    assert "secrets.txt" not in text and "manage.py" in text.splitlines()
    assert any(line.endswith("registry.test/ml/portal:1") and " tag " in line for line in text.splitlines())


def test_pruning_removes_earlier_states_of_the_same_image_alone(checkout: Path, build: Callable[..., str]) -> None:
    build("task-base", "trial-data")
    old = tags(build("--list", "task-base"))["task-base"]
    (checkout / "docker" / "task-base" / "requirements.txt").write_text("pip==1\n")
    text = build("--prune", "task-base")
    assert [line.split()[-1] for line in text.splitlines() if " rmi " in line] == [old]


def test_a_variant_stands_on_the_very_image_of_its_base(build: Callable[..., str]) -> None:
    text = build("dev-pytorch-cpu", TORCH_CPU_INDEX="https://wheels.test/cpu")
    base = tags(build("--list", "dev-base"))["dev-base"]
    call = next(line for line in text.splitlines() if "buildah build" in line and "pytorch" in line)
    assert f"--build-arg BASE_IMAGE={base} " in call and "--build-arg TORCH_INDEX=https://wheels.test/cpu" in call


def test_a_name_that_is_none_is_refused_in_one_line(build: Callable[..., str]) -> None:
    text = build("nothing", status=69)
    assert text.startswith("docker/build: There is no image nothing") and text.count("\n") == 1


def test_every_dockerfile_pins_its_base_as_an_argument_and_ends_without_root() -> None:
    for file in DOCKER.glob("*/Dockerfile"):
        lines = [line.split() for line in file.read_text().splitlines() if line and not line.startswith("#")]
        bases = [words[1] for words in lines if words[0] == "FROM" and words[1] != "scratch"]
        stages = {words[3] for words in lines if words[0] == "FROM" and len(words) > 3}
        assert all(base.startswith("$") or base in stages for base in bases), file
        arguments = {words[1].partition("=")[0]: words[1].partition("=")[2] for words in lines if words[0] == "ARG"}
        for base in set(bases) - stages:
            assert ":" in arguments[base[1:]], f"{file}: {base} has no version"
        assert [words for words in lines if words[0] == "USER"][-1] == ["USER", "1000:1000"], file
