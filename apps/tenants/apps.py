"""Users, teams, queues and the quota ledger."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Users, teams, queues and the quota ledger."""

    name = "apps.tenants"
    label = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
