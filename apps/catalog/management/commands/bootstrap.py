"""``manage.py bootstrap``: the first administrator, team, cluster, queue, sizes and images."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from apps.catalog import first


class Command(BaseCommand):
    """Makes what is missing and says so; a generated password is printed this once."""

    help = "Make the first administrator, team, cluster, queue, sizes and images, where they are missing."

    def handle(self, *args: Any, **options: Any) -> None:
        for line in first.make():
            self.stdout.write(line)
