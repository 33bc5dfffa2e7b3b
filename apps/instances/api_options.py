"""REST forms for what is set of an instance beside image, size and volumes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.instances import options
from apps.instances.models import Instance
from apps.instances.options import Options

NAMES = ("env", "script", "shm_bytes", "time_zone")


class OptionsForm(serializers.Serializer[Any]):
    """Variables (no secrets: who may see the instance reads them), a start-up script, /dev/shm in bytes (null: half of
    the memory) and an IANA time zone. What is left out stays as it is, or as the image has it.
    """

    env = serializers.DictField(child=serializers.CharField(allow_blank=True, trim_whitespace=False), required=False)
    script = serializers.CharField(allow_blank=True, trim_whitespace=False, required=False)
    shm_bytes = serializers.IntegerField(allow_null=True, required=False)
    time_zone = serializers.CharField(allow_blank=True, required=False)


class OptionsItem(serializers.Serializer[Any]):
    """The same as it is now."""

    env = serializers.DictField(child=serializers.CharField())
    script = serializers.CharField()
    shm_bytes = serializers.IntegerField(allow_null=True)
    time_zone = serializers.CharField()


#: Made once: a serializer of its own for each row of a list would cost more than all that it writes.
_ITEM = OptionsItem()


def taken_out(wanted: dict[str, Any]) -> Options:
    """The options of a body, taken out of it."""
    return Options().given({name: wanted.pop(name) for name in NAMES if name in wanted})


def item(instance: Instance) -> dict[str, Any]:
    """For the instance's item."""
    return dict(_ITEM.to_representation(options.of(instance.options)))
