"""The command line against the real REST API, over a real socket."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.models import Image, Purpose, Size
from apps.clusters.models import Cluster
from apps.core.actors import from_user
from apps.flows.models import Flow, Run
from apps.tenants import tokens
from apps.tenants.models import Membership, Queue, Role, Team, User
from portalctl.main import main
from portalctl.rest import Portal, Refused, Unreachable

PASSWORD = "a-long-password"
FLOW = """
name: nightly
queue: research
nodes:
  - {name: main, executor: container, image: python, size: small, command: [python, -c, "print(42)"]}
"""
Cli = Callable[..., int]


@pytest.fixture
def people(transactional_db: None) -> User:
    """Ada, a member of the team whose queue is ``research``."""
    user = User.objects.create_user("ada", password=PASSWORD)
    team = Team.objects.create(name="vision")
    Membership.objects.create(team=team, user=user, role=Role.MEMBER)
    cluster = Cluster.objects.create(
        name="c", server="https://c", credentials="{}", apps_domain="a.test", state="connected"
    )
    Queue.objects.create(
        name="research", team=team, cluster=cluster, namespace="research-1", cpu_millis=4000,
        memory_bytes=2**33, storage_bytes=2**40, state="ready",
    )  # fmt: skip
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    Size.objects.create(name="small", cpu_millis=500, memory_bytes=2**30)
    return user


@pytest.fixture
def cli(people: User, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command with a home of its own, signed in as Ada."""
    monkeypatch.setenv("PORTAL_PASSWORD", PASSWORD)
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": PASSWORD}
    assert main(["login", live_server.url, "--user", "ada"], environ) == 0

    def run(*words: str, **more: str) -> int:
        return main(words, {**environ, **more})

    return run


@pytest.fixture
def flow(cli: Cli, tmp_path: Path) -> str:
    """A saved flow."""
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    assert cli("flow", "create", "-f", str(file)) == 0
    return "nightly"


def test_login_keeps_the_token_for_its_owner_alone(cli: Cli, tmp_path: Path) -> None:
    kept = tmp_path / ".config" / "portalctl.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert PASSWORD not in kept.read_text()


def test_a_wrong_password_is_refused_with_the_portals_words_and_keeps_nothing(
    people: User, live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": "wrong"}
    assert main(["login", live_server.url, "--user", "ada"], environ) == 3
    assert "not_authenticated" in capsys.readouterr().err
    assert not (tmp_path / ".config").exists()


def test_without_a_terminal_the_way_to_give_name_and_password_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["login", "http://127.0.0.1:9"], {"HOME": str(tmp_path)}) == 2
    assert "PORTAL_PASSWORD" in capsys.readouterr().err


def test_an_address_that_is_no_portal_is_told_so(
    live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": PASSWORD}
    assert main(["login", f"{live_server.url}/static", "--user", "ada"], environ) == 4
    assert "no portal" in capsys.readouterr().err


def test_without_a_token_the_next_step_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "list"], {"HOME": str(tmp_path)}) == 2
    assert "portalctl login" in capsys.readouterr().err


def test_a_portal_that_is_away_is_status_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "list"], {"PORTAL_TOKEN": "x", "PORTAL_URL": "http://127.0.0.1:9"}) == 4
    assert "does not answer" in capsys.readouterr().err


def test_lists_are_tables_for_people_and_json_for_programs(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli("queue", "list") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "STATE", "TEAM", "CLUSTER"]
    assert row.split()[:2] == ["research", "ready"]
    assert cli("queue", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "research"


def test_a_flow_from_a_file_runs_once_however_often_ci_repeats_the_call(
    cli: Cli, flow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for _ in range(3):
        assert cli("flow", "run", flow, "--param", "rev=abc", "--key", "build-7") == 0
    assert len(set(capsys.readouterr().out.splitlines())) == 1
    run = Run.objects.as_system().get()
    assert run.parameters == {"rev": "abc"}


def test_the_exit_status_of_a_waited_run_is_the_runs(cli: Cli, flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli("flow", "run", flow)
    run = Run.objects.as_system().get()
    for state, status in (("succeeded", 0), ("failed", 1), ("cancelled", 1)):
        Run.objects.as_system().filter(pk=run.pk).update(state=state)
        assert cli("run", "wait", str(run.pk)) == status


def test_waiting_outlasts_a_portal_that_is_away_for_a_moment(
    cli: Cli, flow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("flow", "run", flow)
    Run.objects.as_system().update(state="succeeded")
    run = Run.objects.as_system().get()
    real, away = Portal.call, [Unreachable("away"), Refused(503, {"code": "database_away"})]

    def call(self: Portal, *words: Any, **more: Any) -> Any:
        if away:
            raise away.pop()
        return real(self, *words, **more)

    monkeypatch.setattr(Portal, "call", call)
    monkeypatch.setattr("portalctl.rest.ASK_AGAIN_S", 0)
    assert cli("run", "wait", str(run.pk)) == 0
    assert away == []


def test_a_ci_token_for_one_flow_follows_its_runs_by_name_and_sees_no_other_flow(
    cli: Cli, flow: str, tmp_path: Path, live_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(FLOW.replace("nightly", "other"))
    cli("flow", "create", "-f", str(other))
    cli("flow", "run", "other")
    others = Run.objects.as_system().get()
    mine = Flow.objects.as_system().get(name="nightly")
    actor = from_user(User.objects.get(username="ada"))
    _row, text = tokens.create(actor=actor, name="ci", scopes=[f"flow:run:{mine.pk}"])
    as_ci = {"PORTAL_TOKEN": text, "PORTAL_URL": live_server.url}
    assert cli("flow", "run", flow, "--key", "build-7", **as_ci) == 0
    run = Run.objects.as_system().get(flow=mine)
    Run.objects.as_system().filter(pk=run.pk).update(state="succeeded")
    assert cli("flow", "run", flow, "--key", "build-7", "--logs", **as_ci) == 0
    assert cli("run", "log", str(run.pk), **as_ci) == 0
    assert cli("flow", "run", "other", **as_ci) == 2
    theirs = str(others.pk)
    for words in (("run", "wait", theirs), ("run", "log", theirs), ("run", "cancel", theirs), ("instance", "list")):
        assert cli(*words, **as_ci) == 3
    assert Run.objects.as_system().count() == 2


def test_faults_of_a_flow_are_told_by_field(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(FLOW.replace("size: small", "size: enormous"))
    assert cli("flow", "create", "-f", str(file)) == 3
    assert "nodes/0/size" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\t"])
def test_a_file_that_is_no_flow_is_wrong_usage(cli: Cli, tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    assert cli("flow", "create", "-f", str(file)) == 2


def test_an_unknown_name_and_a_deletion_without_yes_change_nothing(
    cli: Cli, flow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("flow", "pause", "nothing") == 2
    assert cli("flow", "delete", flow) == 2
    assert "--yes" in capsys.readouterr().err
    assert cli("flow", "pause", f"research/{flow}") == 0
    assert cli("flow", "delete", flow, "--yes") == 0
    assert cli("flow", "show", flow) == 2


def test_chinese_names_stay_aligned() -> None:
    from portalctl import show

    text = show.table([{"name": "训练", "state": "running"}, {"name": "ab", "state": "stopped"}], ["name", "state"])
    assert text.splitlines()[1:] == ["训练  running", "ab    stopped"]
