"""What a container is given, as pure values: sandbox options, command, environment, identity files, image names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from localkube.node import containers
from localkube.node.containers import environment, expand
from localkube.node.images import Image, ImageError, Images, normalize
from localkube.node.sandbox import Bind, Sandbox, Tmpfs, bwrap_options, identity_files, pack, system_binds
from localkube.node.volumes import Source

POD: Any = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "main", "image": "x"}]},
}
IMAGE = Image("x", "sha256:0", Path("/i/venv"), Path("/py"), Path("/ld"), ("default", "command"))


def pairs(options: list[str], name: str) -> list[tuple[str, str]]:
    return [(options[i + 1], options[i + 2]) for i, word in enumerate(options) if word == name]


def test_everything_is_unshared_and_no_capability_is_kept() -> None:
    options = bwrap_options(Sandbox(argv=("x",)), system=([], []))
    for flag in ("--unshare-user", "--unshare-pid", "--disable-userns", "--new-session", "--clearenv"):
        assert flag in options
    assert options[options.index("--cap-drop") + 1] == "ALL"
    assert "--share-net" not in options


def test_mounts_are_made_from_the_outside_in() -> None:
    box = Sandbox(
        argv=("x",),
        binds=(Bind("/v/deep", "/root/a/b"), Bind("/v/home", "/root", read_only=False)),
        tmpfs=(Tmpfs("/root/a", 4096),),
    )
    options = bwrap_options(box, system=([], []))
    order = [options.index(target) for target in ("/v/home", "4096", "/v/deep")]
    assert order == sorted(order)
    assert ("/v/home", "/root") in pairs(options, "--bind")
    assert ("/v/deep", "/root/a/b") in pairs(options, "--ro-bind")


def test_only_read_only_binds_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "etc" / "ssl").mkdir(parents=True)
    (tmp_path / "etc" / "shadow").touch()
    binds, links = system_binds(tmp_path)
    assert [bind.target for bind in binds] == ["/usr", "/etc/ssl"]
    assert all(bind.read_only for bind in binds)
    assert links == [("usr/lib", "/lib")]


def test_sources_are_looked_up_in_the_stage_where_there_is_one() -> None:
    box = Sandbox(argv=("x",), binds=(Bind("/secret/place", "/root"),))
    options = bwrap_options(box, system=([], []), locate=lambda _bind: "/mnt/0")
    assert "/secret/place" not in options
    assert ("/mnt/0", "/root") in pairs(options, "--ro-bind")


def test_options_with_a_zero_byte_are_refused() -> None:
    assert pack(["a", "ü", "\udcff"]) == b"a\0\xc3\xbc\0\xff\0"
    with pytest.raises(ValueError, match="zero byte"):
        pack(["--setenv", "A", "x\0--bind\0/\0/host"])


def test_identity_files_name_the_pod_and_its_user() -> None:
    files = identity_files(
        uid=1000,
        gid=1000,
        hostname="p",
        address="127.0.0.9",
        nameservers=["1.1.1.1"],
    )
    assert files["passwd"].startswith("user:x:1000:1000:user:/root:/bin/bash\n")
    assert "127.0.0.9\tp\n" in files["hosts"]
    assert files["resolv.conf"] == "nameserver 1.1.1.1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$(NOPE)", "$(NOPE)"), ("a$(A)b$(B)", "a1b2"), ("$A", "$A"), ("$$$(A)", "$1")],
)
def test_references_are_replaced_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_command_and_args_replace_the_images_own() -> None:
    assert containers.command({}, IMAGE, {}) == ("default", "command")
    assert containers.command({"args": ["$(A)"]}, IMAGE, {"A": "1"}) == ("1",)
    assert containers.command({"command": ["c"], "args": ["a"]}, IMAGE, {}) == ("c", "a")


def test_programs_trust_whom_the_machine_trusts_unless_told_otherwise() -> None:
    assert containers.trust(lambda path: path.startswith("/etc/pki")) == {
        "SSL_CERT_FILE": "/etc/pki/tls/certs/ca-bundle.crt",
        "REQUESTS_CA_BUNDLE": "/etc/pki/tls/certs/ca-bundle.crt",
    }
    assert containers.trust(lambda _path: False) == {}
    env = environment(POD, {"env": [{"name": "SSL_CERT_FILE", "value": "/own"}]})
    assert env["SSL_CERT_FILE"] == "/own"


def test_a_claim_mounted_read_only_anywhere_is_read_only() -> None:
    spec = {"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b", "readOnly": True}]}
    sources = {"a": Source("/v/a", "bind", read_only=True), "b": Source("/v/b", "bind")}
    binds, memory = containers.mounts(spec, sources)
    assert all(bind.read_only for bind in binds)
    assert memory == []


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("mlportal/jupyter:1", "docker.io/mlportal/jupyter:1"),
        ("ghcr.io/a/b", "ghcr.io/a/b:latest"),
        ("localhost:5000/a:2", "localhost:5000/a:2"),
        ("a@sha256:00", "docker.io/library/a@sha256:00"),
    ],
)
def test_references_are_spelt_out_as_the_runtime_does(reference: str, full: str) -> None:
    assert normalize(reference) == full


def test_every_image_of_this_repository_has_its_files() -> None:
    table = Path(__file__).parents[3] / "docker" / "images.toml"
    images = Images(table, Path("/nowhere"))
    assert images.references == ["mlportal/jupyter:1", "mlportal/python:1"]
    for reference in images.references:
        source = images.source(f"docker.io/{reference}")
        assert source.requirements.is_file()
        assert (source.folder / "Dockerfile").is_file()
        assert all((package / "__init__.py").is_file() for package in source.packages)
        assert source.entrypoint is None or source.entrypoint.is_file()
        assert all(program.is_file() for program in source.programs)
        lines = [line for line in source.requirements.read_text().splitlines() if line[:1].isalnum()]
        assert all("==" in line for line in lines)


def test_links_of_an_image_are_made_inside() -> None:
    options = bwrap_options(Sandbox(argv=("true",), links=(("/etc/shadow", "/run/mlportal/shadow"),)), system=([], []))
    at = options.index("/run/mlportal/shadow")
    assert options[at - 1 : at + 2] == ["--symlink", "/run/mlportal/shadow", "/etc/shadow"]


def test_without_a_table_every_image_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"docker\.io/library/x:latest: not found"):
        Images(None, tmp_path).source("x")


def test_images_that_nothing_leads_to_go_unless_a_pod_runs_from_them(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "requirements.txt").touch()
    table = tmp_path / "images.toml"
    table.write_text('[images."x:1"]\nfolder = "bare"\ncommand = ["x"]\n')
    images = Images(table, tmp_path / "cache")
    asyncio.run(images.pull("x:1", lambda _text: None))
    built = {path.name for path in (tmp_path / "cache").iterdir()}
    for name in ("0ld", "layer-0ld", "busy"):
        (tmp_path / "cache" / name).mkdir()
    (tmp_path / "cache" / "0ld.lock").touch()
    images.prune('{"venv": "/cache/busy/venv"}')
    assert {path.name for path in (tmp_path / "cache").iterdir()} == built | {"busy"}
    assert images.present("x:1")


def test_a_failed_build_leaves_nothing_and_tells_why(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "requirements.txt").write_text("this is no requirement\n")
    table = tmp_path / "images.toml"
    table.write_text('[images."bad:1"]\nfolder = "bad"\ncommand = ["x"]\n')
    images = Images(table, tmp_path / "cache")
    with pytest.raises(ImageError, match="building its virtual environment failed"):
        asyncio.run(images.pull("bad:1", lambda _text: None))
    assert not images.present("bad:1")
    assert [path.name for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".lock")] == []
