"""Delivery of alarms by mail and webhook."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Delivery of alarms by mail and webhook."""

    name = "apps.alerts"
    label = "alerts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The outbox topics that this app delivers, and whom it tells of the portal's own troubles."""
        from apps.alerts import administrators, delivery
        from apps.core import standing

        delivery.register()
        standing.on_lasting(administrators.tell)
