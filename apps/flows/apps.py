"""Task flows: documents, schedules, runs, attempts, logs."""

from django.apps import AppConfig


class FlowsConfig(AppConfig):
    """Task flows: documents, schedules, runs, attempts, logs."""

    name = "apps.flows"
    label = "flows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register reconcilers, control loops, wordings and alarms."""
        from apps.flows import wiring

        wiring.register()
