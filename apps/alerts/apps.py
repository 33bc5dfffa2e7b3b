"""Delivery of alarms by mail and webhook."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Delivery of alarms by mail and webhook."""

    name = "apps.alerts"
    label = "alerts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The outbox topics that this app delivers."""
        from apps.alerts import delivery

        delivery.register()
