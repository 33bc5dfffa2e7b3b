"""Images and sizes that people choose from."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Images and sizes that people choose from."""

    name = "apps.catalog"
    label = "catalog"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The image with which clusters are tried out."""
        from apps.catalog import wiring

        wiring.register()
