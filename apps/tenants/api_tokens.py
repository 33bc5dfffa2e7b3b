"""REST for personal tokens."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import Item, PortalViewSet
from apps.core.listing import ListSpec
from apps.tenants import tokens
from apps.tenants.authentication import PasswordAuthentication
from apps.tenants.models import ApiToken


class TokenItem(Item):
    """A token without its text."""

    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenMade(TokenItem):
    """A token just made: the one time that its text is shown."""

    token = serializers.CharField(source="text")


class TokenForm(serializers.Serializer[Any]):
    """What is asked for a token."""

    name = serializers.CharField(default="api", max_length=200)
    days = serializers.IntegerField(default=tokens.DEFAULT_DAYS)
    scopes = serializers.ListField(child=serializers.CharField(), default=list)


class TokenViewSet(PortalViewSet):
    """One's own tokens. The first one is made with name and password (HTTP Basic)."""

    kind = "token"
    rows = ApiToken.objects.for_actor
    item = TokenItem
    spec = ListSpec(
        filters={"name": lambda text: Q(name__icontains=text)},
        sorts={"created": "created_at", "name": "name", "expires": "expires_at"},
    )

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Basic is looked at first and for POST alone, because the bearer scheme refuses all others."""
        usual = super().get_authenticators()
        posts = self.request is not None and self.request.method == "POST"
        return [PasswordAuthentication(), *usual] if posts else usual

    @extend_schema(request=TokenForm, responses={201: TokenMade})
    def create(self, request: Request) -> Response:
        """Make a token; its text is in this answer and never again."""
        token, text = tokens.create(actor=self.actor, **self.read(TokenForm, request))
        token.text = text  # type: ignore[attr-defined]
        return Response(TokenMade(token, context=self.context()).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke the token."""
        tokens.revoke(actor=self.actor, token=self.find(pk))
        return Response(status=status.HTTP_204_NO_CONTENT)
