"""Volumes: homes and data."""

from django.apps import AppConfig


class StorageConfig(AppConfig):
    """Volumes: homes and data."""

    name = "apps.storage"
    label = "storage"
    default_auto_field = "django.db.models.BigAutoField"
