"""Dev instances."""

from django.apps import AppConfig


class InstancesConfig(AppConfig):
    """Dev instances: a keyed JupyterLab with a home that survives."""

    name = "apps.instances"
    label = "instances"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register reconciler, watch handlers and wordings."""
        from apps.instances import wiring

        wiring.register()
