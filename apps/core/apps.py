"""The base every other app stands on: records, states, claims, errors, audit, live updates."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Loaded first; imports no other app."""

    name = "apps.core"
    label = "core"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the base's control loops, and what it shows to administrators."""
        from apps.core import loops, standing

        loops.register()
        standing.register()
