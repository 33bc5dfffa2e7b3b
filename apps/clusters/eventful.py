"""The column in which a row keeps what its cluster reports of it."""

from __future__ import annotations

from django.db import models


class Eventful(models.Model):
    """A row that keeps what its cluster reports of it, in plain words and newest first (`apps.clusters.events`)."""

    last_events = models.JSONField(default=list, editable=False)

    class Meta:
        abstract = True
