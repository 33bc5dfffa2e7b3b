"""The web socket of a page that shows an instance's log: it says that there is more, and the page reads again.

One stream of the cluster for each page that is open, as long as it is open. No line goes through it, so that what a
page shows always comes by its ordinary address, where the key is left out and rights are looked at.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.contrib.auth import get_user_model
from django.db import DatabaseError
from django.utils import timezone

from apps.clusters import access
from apps.core import actors, control
from apps.core.errors import PortalError
from apps.instances import selectors
from kubekit.build.pod import CONTAINER
from kubekit.credentials import Credentials
from kubekit.errors import KubeError
from kubekit.streams import Streams

#: The shortest time between two signals, and the time after which a pod is asked for again that has no log yet.
QUIET_S = 0.5
AGAIN_S = 1.0
#: How often it is looked whether the person may still see the instance.
RECHECK_S = 30.0
#: Pages that one web process follows logs for; more of them read every few seconds instead.
MOST = 200


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the log comes from; no pod while the instance is at rest."""

    credentials: Credentials | None
    namespace: str
    pod: str


class LogFollower(AsyncJsonWebsocketConsumer):
    """``{"more": true}`` whenever the log of the instance has grown."""

    following: ClassVar[int] = 0

    async def connect(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        if LogFollower.following >= MOST:
            await self.close(code=4429)
            return
        self._place = await self._look()
        if self._place is None:
            await self.close(code=4404)
            return
        await self.accept()
        LogFollower.following += 1
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._keep_looking())]

    async def disconnect(self, code: int) -> None:
        if self._tasks:
            LogFollower.following -= 1
        for task in self._tasks:
            task.cancel()

    async def receive(self, *_: Any, **__: Any) -> None:
        """Pages have nothing to say here."""
        await self.close(code=4400)

    async def _look(self) -> Place | None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            return None
        return await control.in_thread(_place, user.pk, self.scope["url_route"]["kwargs"]["pk"])

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                self._place = await self._look()
            except DatabaseError:
                continue  # not known now; the page itself is told so when it reads
            if self._place is None:
                await self.close(code=4404)
                return

    async def _follow(self) -> None:
        while (place := self._place) is not None:
            if place.credentials is not None:
                await self._signal_growth(place, place.credentials)
            await asyncio.sleep(AGAIN_S)

    async def _signal_growth(self, place: Place, credentials: Credentials) -> None:
        """Until the container ends, or cannot be followed."""
        since = timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        async with Streams(credentials) as streams:
            try:
                async for _piece in streams.follow_log(place.namespace, place.pod, CONTAINER, since_time=since):
                    await self.send_json({"more": True})
                    await asyncio.sleep(QUIET_S)
            except KubeError:
                return  # not there yet, or not any more: it is asked for again


def _place(user_pk: Any, pk: UUID) -> Place | None:
    """None for whoever may not see the instance."""
    user = get_user_model()._base_manager.filter(pk=user_pk, is_active=True).first()
    found = selectors.visible(actors.from_user(user)).filter(pk=pk).first() if user is not None else None
    if found is None:
        return None
    try:
        credentials = None if found.at_rest else access.credentials_of(found.queue.cluster)
    except PortalError:
        credentials = None
    return Place(credentials=credentials, namespace=found.queue.namespace, pod=found.pod_name)
