"""Images and sizes that people choose from."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Images and sizes that people choose from."""

    name = "apps.catalog"
    label = "catalog"
    default_auto_field = "django.db.models.BigAutoField"
