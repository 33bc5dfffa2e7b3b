"""`platform/` is a source root that shares its name with a module of the standard library."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_platform_is_no_package():
    assert not (ROOT / "platform" / "__init__.py").exists()


@pytest.mark.parametrize("search_path", [".", ".:platform"])
def test_import_platform_gives_the_standard_library_from_the_repository_root(search_path):
    code = "import platform; print(platform.python_implementation(), platform.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": search_path}, capture_output=True, text=True
    )
    implementation, file = done.stdout.split()
    assert implementation == "CPython"
    assert not Path(file).is_relative_to(ROOT / "platform")


def test_no_module_of_the_project_hides_one_of_the_standard_library():
    top = {path.stem for path in (ROOT / "platform").iterdir() if path.name != "__pycache__"}
    assert not top & set(sys.stdlib_module_names)


def test_manage_py_works_from_another_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split(".")[0]) == (0, "5"), done.stderr
