"""Web socket addresses of the base."""

from django.urls import path

from apps.core.consumers import LiveConsumer

websocket_urlpatterns = [path("live/", LiveConsumer.as_asgi())]
