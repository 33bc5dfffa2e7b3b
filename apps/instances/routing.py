"""Web socket addresses of dev instances."""

from django.urls import path

from apps.instances.consumers import LogFollower

websocket_urlpatterns = [path("live/instances/<uuid:pk>/log", LogFollower.as_asgi())]
