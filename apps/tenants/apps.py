"""Users, teams, queues and the quota ledger."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Users, teams, queues and the quota ledger."""

    name = "apps.tenants"
    label = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sentences, the queues' reconciler, live groups, and what the pages of the base ask of tenants."""
        from apps.tenants import home, wiring

        home.register()
        wiring.register()
