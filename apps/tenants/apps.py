"""Users, teams, queues and the quota ledger."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Users, teams, queues and the quota ledger."""

    name = "apps.tenants"
    label = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Sentences, the queues' reconciler, the groups of live updates, and what the base's pages show of tenants."""
        from apps.tenants import home, wiring

        wiring.register()
        home.register()
