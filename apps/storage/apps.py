"""Volumes: homes and data."""

from django.apps import AppConfig


class StorageConfig(AppConfig):
    """Volumes: homes and data."""

    name = "apps.storage"
    label = "storage"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sentences, the volumes' reconciler, what the watch tells of claims."""
        from apps.storage import wiring

        wiring.register()
