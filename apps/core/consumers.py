"""The one WebSocket of the portal's pages: ``{kind, pk}`` for each change that the person may see."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer
from django.contrib.auth import get_user_model
from django.db import DatabaseError

from apps.core import actors, control, live

RECHECK_S = 30.0


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Joins the groups of the person's queues; asks again every half minute, so a revoked right ends soon."""

    groups_joined: set[str]

    async def connect(self) -> None:
        self.groups_joined = set()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=4401)
            return
        self.user_pk = user.pk
        await self._join()
        await self.accept()
        self._recheck = asyncio.create_task(self._keep_checking())

    async def receive(self, *_: Any, **__: Any) -> None:
        """Pages have nothing to say here; whoever does is no page."""
        await self.close(code=4400)

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "_recheck"):
            self._recheck.cancel()
        for name in self.groups_joined:
            await self.channel_layer.group_discard(name, self.channel_name)

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                await self._join()
            except DatabaseError:
                # What the person may hear now is not known. Their page comes again by itself.
                await self.close(code=4503)
                return

    async def _join(self) -> None:
        wanted = await control.in_thread(_groups, self.user_pk)
        if wanted is None:
            await self.close(code=4401)
            return
        for name in self.groups_joined - wanted:
            await self.channel_layer.group_discard(name, self.channel_name)
        for name in wanted - self.groups_joined:
            await self.channel_layer.group_add(name, self.channel_name)
        self.groups_joined = wanted

    async def changed(self, event: dict[str, Any]) -> None:
        """Rows changed; the page fetches each again."""
        for kind, pk in event["rows"]:
            await self.send_json({"kind": kind, "pk": pk})


class NothingHere(AsyncWebsocketConsumer):
    """Every address that is none; without it a web socket there would be a fault of the server."""

    async def connect(self) -> None:
        await self.close(code=4404)


def _groups(user_pk: Any) -> set[str] | None:
    user = get_user_model()._base_manager.filter(pk=user_pk, is_active=True).first()
    return None if user is None else live.groups_for(actors.from_user(user))
