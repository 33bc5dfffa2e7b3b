"""``manage.py check_cluster NAME``: check a cluster and print what it has and what is missing."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.clusters import check_words, checks, selectors, services
from apps.clusters.models import ClusterCheck
from apps.clusters.states import CheckState
from apps.core import actors, reconciling

ACTOR = actors.system("check_cluster")
MARKS = {"good": "ok     ", "missing": "MISSING", "note": "note   ", "unknown": "unknown"}
MOST_S = 600.0
PAUSE_S = 0.5


class Command(BaseCommand):
    """Carries the check out here, or waits for the worker that has it. Status 1 when something is missing."""

    help = "Check what a cluster has and what is missing, with the command that mends it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the cluster's name in the portal")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = selectors.clusters(ACTOR).filter(name=options["name"]).first()
        if cluster is None:
            raise CommandError(f"there is no cluster named {options['name']}")
        row = services.check(actor=ACTOR, cluster=cluster)
        end = time.monotonic() + MOST_S
        while row.state != CheckState.SUCCEEDED:
            if time.monotonic() > end:
                raise CommandError("the check has not ended")
            if not reconciling.reconcile_one(checks.KIND, row.pk):
                time.sleep(PAUSE_S)  # a worker has it
            row.refresh_from_db()
        self._print(row)

    def _print(self, row: ClusterCheck) -> None:
        lines = check_words.all_shown(row.lines)
        for line in lines:
            self.stdout.write(f"{MARKS[line.result]}  {line.what}: {line.detail}")
            for text in (*line.evidence, line.fix, f"$ {line.command}" if line.command else ""):
                if text:
                    self.stdout.write(f"         {text}")
        missing = sum(line.result == "missing" for line in lines)
        if missing:
            raise CommandError(f"missing: {missing}", returncode=1)
