"""A flow starts from the catalogue that its author sees, never from what a team named for instances."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.catalog.models import Image, ImageTeam, Purpose
from apps.core.errors import Invalid
from apps.flows.models import Flow
from apps.tenants.models import Queue
from tests.tenants import make


def test_only_what_the_catalogue_offers_its_author_can_be_chosen(queue: Queue, new_flow: Callable[..., Flow]) -> None:
    def image(name: str, **more: object) -> Image:
        made: Image = Image.objects.create(name=name, reference=f"r/{name}", purpose=Purpose.TASK, **more)
        return made

    own, hidden, retired = image("own", team=queue.team), image("secret", hidden=True), image("old", retired=True)
    other = image("theirs", hidden=True)
    ImageTeam.objects.create(image=other, team=make.team())
    for wrong in (own.name, str(own.pk), hidden.name, retired.name, other.name):
        with pytest.raises(Invalid) as refused:
            new_flow(image=wrong)
        assert "There is no image" in str(refused.value.errors), wrong
    ImageTeam.objects.create(image=hidden, team=queue.team)
    assert new_flow(image=hidden.name, name="chosen").name == "chosen"
