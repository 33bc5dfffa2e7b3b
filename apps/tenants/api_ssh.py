"""REST for one's own keys for SSH."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import Item, PortalViewSet
from apps.core.listing import ListSpec
from apps.tenants import sshkeys
from apps.tenants.models import SshKey


class SshKeyItem(Item):
    """A public key. ``key`` is its text without the comment, ``fingerprint`` as ``ssh-keygen -l`` writes it."""

    kind = serializers.CharField()
    key = serializers.CharField(source="public")
    fingerprint = serializers.CharField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class SshKeyForm(serializers.Serializer[Any]):
    """The line of a ``.pub`` file; without a name it gets the line's own comment."""

    key = serializers.CharField(trim_whitespace=False, allow_blank=True)
    name = serializers.CharField(default="", allow_blank=True, max_length=200)


class SshKeyViewSet(PortalViewSet):
    """One's own public keys."""

    kind = "ssh-key"
    rows = SshKey.objects.for_actor
    item = SshKeyItem
    spec = ListSpec(
        filters={
            "name": lambda text: Q(name__icontains=text),
            "fingerprint": lambda text: Q(fingerprint=text),
        },
        sorts={"created": "created_at", "name": "name"},
    )

    @extend_schema(request=SshKeyForm, responses={201: SshKeyItem})
    def create(self, request: Request) -> Response:
        """Add a key; it opens your instances at once."""
        wanted = self.read(SshKeyForm, request)
        key = sshkeys.add(actor=self.actor, id=self.new_id(request), **wanted)
        return self.answer(key, code=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Take a key away; what it has open is closed."""
        sshkeys.delete(actor=self.actor, key=self.find(pk))
        return Response(status=status.HTTP_204_NO_CONTENT)
