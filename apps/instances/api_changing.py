"""REST forms of a change: what should be otherwise, and what that would mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from apps.core.errors import Invalid
from apps.instances import api_options, changing
from apps.instances.api_options import OptionsForm
from apps.instances.changing import Preview, When, Wishes

DRY_RUN = OpenApiParameter("dry_run", OpenApiTypes.BOOL, description="Only say what would change.")


class MountForm(serializers.Serializer[Any]):
    """A volume (name or id) of the queue at a path."""

    volume = serializers.CharField(max_length=100)
    path = serializers.CharField(max_length=255)
    read_only = serializers.BooleanField(default=False)  # type: ignore[assignment]  # hides Field.read_only, a bool


class ChangeForm(OptionsForm):
    """What should be otherwise; what is left out stays. ``volumes`` and ``env`` replace the whole of it.

    ``when`` is asked of an instance that runs: ``restart`` now, or from its ``next_start`` on. With ``revision`` the
    change is refused (``changed_meanwhile``) when somebody else was quicker.
    """

    size = serializers.CharField(max_length=100, required=False)
    image = serializers.CharField(max_length=100, required=False)
    own_image = serializers.CharField(max_length=1000, required=False)
    volumes = MountForm(many=True, required=False)
    when = serializers.ChoiceField(choices=list(changing.TIMES), required=False)
    revision = serializers.IntegerField(required=False)


class ChangeItem(serializers.Serializer[Any]):
    """One thing that changes; ``before`` or ``after`` is empty for what comes or goes."""

    what = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class PlanItem(serializers.Serializer[Any]):
    """What a change would mean: what changes, whether a start is needed, what ends and stays, whether it would run."""

    changes = ChangeItem(many=True)
    needs_start = serializers.BooleanField()
    ends = serializers.ListField(child=serializers.CharField())
    keeps = serializers.ListField(child=serializers.CharField())
    forecast = serializers.DictField()
    revision = serializers.IntegerField()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A body, sorted."""

    wishes: Wishes
    when: When
    revision: int | None


def ask(body: dict[str, Any]) -> Asked:
    """What a `ChangeForm` asks for."""
    return Asked(
        wishes=Wishes(
            image=body.get("image"),
            own_image=body.get("own_image", ""),
            size=body.get("size"),
            volumes=body.get("volumes"),
            options={name: body[name] for name in api_options.NAMES if name in body},
        ),
        when=changing.when_of(body.get("when", "")),
        revision=body.get("revision"),
    )


def is_dry_run(request: Request) -> bool:
    """Whether only the plan is asked for. Raises ``Invalid`` for a word that could mean either."""
    text = request.query_params.get("dry_run", "false").lower()
    if text not in {"", "1", "true", "0", "false"}:
        raise Invalid("dry_run is true or false.", code="dry_run_invalid", errors={"dry_run": "true or false"})
    return text in {"", "1", "true"}


def plan_item(found: Preview) -> dict[str, Any]:
    """The answer to a dry run."""
    return dict(PlanItem(found.as_dict()).data)
