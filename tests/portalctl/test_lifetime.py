"""``portalctl instance keep`` and ``end`` against the real REST API."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.instances.lifetime.rows import Lifetime
from apps.instances.models import Instance
from portalctl import lifetime
from portalctl.main import main
from tests.instances.conftest import World, world  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("text", "away"),
    [("8h", timedelta(hours=8)), ("+3d", timedelta(days=3)), ("90min", timedelta(minutes=90))],
)
def test_a_length_of_time_counts_from_now(text: str, away: timedelta) -> None:
    found = lifetime.moment(text)
    assert found is not None
    assert abs(datetime.fromisoformat(found) - datetime.now(UTC) - away) < timedelta(seconds=90)


def test_a_time_is_taken_as_it_is_and_none_is_none() -> None:
    assert lifetime.moment("2031-05-01T18:00+02:00") == "2031-05-01T16:00:00+00:00"
    assert lifetime.moment("none") is None


@pytest.mark.parametrize("text", ["", "soon", "8", "8 h", "-3d", "9999999d", "2031-13-01", "1e3h"])
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time; say 8h"):
        lifetime.moment(text)


def test_an_instance_is_kept_and_ended_by_its_name(
    world: World,  # noqa: F811
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.owner.set_password("a-long-password")
    world.owner.save()
    monkeypatch.setenv("PORTAL_PASSWORD", "a-long-password")
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": "a-long-password"}
    assert main(["login", live_server.url, "--user", world.owner.username], environ) == 0
    instance = world.running(name="mine")
    assert main(["instance", "keep", "mine", "--until", "8h"], environ) == 0
    life = Lifetime.objects.as_system().get(pk=instance.pk)
    assert life.keep_until is not None
    assert abs(life.keep_until - timezone.now() - timedelta(hours=8)) < timedelta(minutes=2)
    assert "mine: kept until 20" in capsys.readouterr().out
    assert main(["instance", "keep", "mine", "--until", "none"], environ) == 0
    assert main(["instance", "keep", "mine", "--until", "60d"], environ) == 3
    assert "7 days" in capsys.readouterr().err
    assert main(["instance", "end", "mine", "--at", "2d"], environ) == 0
    capsys.readouterr()
    assert main(["instance", "list"], environ) == 0
    shown = capsys.readouterr().out
    assert "ENDS AT" in shown
    assert str(timezone.now().year) in shown
    words = ["instance", "create", "--image", "jupyter", "--size", "small", "--name", "short", "--ends", "5h"]
    assert main([*words, "--queue", world.queue.name], environ) == 0
    assert main(["instance", "show", "short"], environ) == 0
    told = json.loads("{" + capsys.readouterr().out.partition("{")[2])
    assert told["lifetime"]["ends_at"] is not None
    assert Instance.objects.as_system().get(name="short").pk
