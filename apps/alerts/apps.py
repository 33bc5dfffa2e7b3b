"""Delivery of alarms by mail and webhook."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Delivery of alarms by mail and webhook."""

    name = "apps.alerts"
    label = "alerts"
    default_auto_field = "django.db.models.BigAutoField"
