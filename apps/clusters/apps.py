"""Registered clusters: credentials, capacity, watching."""

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    """Registered clusters: credentials, capacity, watching."""

    name = "apps.clusters"
    label = "clusters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sentences for reasons, and the loop that watches."""
        from apps.clusters import wiring

        wiring.register()
