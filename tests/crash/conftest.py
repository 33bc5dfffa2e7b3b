"""One real portal, whose processes these tests kill, with short leases and a short grace for orphans."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import SEED, Stage
from tests.journeys.portal import Portal
from tests.journeys.sinks import MailSink, WebhookSink

LEASE_S, GRACE_S = 2, 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Another order for each seed, within each file."""
    if not SEED:
        return
    dice, mine = random.Random(SEED), [item for item in items if item.path.parent == Path(__file__).parent]
    places = [items.index(item) for item in mine]
    drawn = {path: dice.sample(found, len(found)) for path, found in _by_file(mine).items()}
    for place, item in zip(places, (item for found in drawn.values() for item in found), strict=True):
        items[place] = item


def _by_file(items: list[pytest.Item]) -> dict[Path, list[pytest.Item]]:
    found: dict[Path, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.path, []).append(item)
    return found


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The portal, its sinks and its observer. Ctrl-C ends it at last, as if nothing had happened."""
    folder = tmp_path_factory.mktemp("crash")
    points = folder / "points"
    points.mkdir()
    mail, webhook = MailSink(), WebhookSink()
    mail.start()
    webhook.start()
    images = Path.home() / ".cache" / "mlportal" / "images"
    portal = Portal(
        home=folder / "home",
        env={
            "PORTAL_SMTP_URL": mail.url,
            "PORTAL_EGRESS_ALLOW": "127.0.0.1",
            "PORTAL_LEASE_S": str(LEASE_S),
            "PORTAL_ORPHAN_GRACE_S": str(GRACE_S),
            "MLPORTAL_CRASH_POINTS": str(points),
            "LOCALKUBE_IMAGE_CACHE": str(images),
        },
    )
    portal.start()
    found = Stage(portal=portal, points=points, mail=mail, webhook=webhook)
    found.observer.start()
    found.wait_for_all()
    yield found
    found.calls.shutdown()
    found.observer.stop()
    assert portal.stop() == 0, portal.log.read_text()[-4000:]
    mail.stop()
    webhook.stop()
