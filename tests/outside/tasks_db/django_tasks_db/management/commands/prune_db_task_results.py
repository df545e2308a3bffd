"""``prune_db_task_results`` with the flags that the suite gives it: it is our ``purge``."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_localqueue import JobFilter, queues

logger = logging.getLogger("django_tasks_db.prune")
DAY = 86_400


class Command(BaseCommand):
    """Purges finished jobs of the named queues."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue-name", default="*")
        parser.add_argument("--min-age-days", type=int, default=14)
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        names = list(queues) if options["queue_name"] == "*" else [options["queue_name"]]
        if options["dry_run"]:
            count = sum(
                queues[name].count(JobFilter(state=state))
                for name in names
                for state in ("acked", "failed")
            )
            said = f"Would delete {count} task result(s)"
        else:
            age = options["min_age_days"] * DAY
            count = sum(queues[name].purge(age, include_failed=True) for name in names)
            said = f"Deleted {count} task result(s)"
        if options["verbosity"] >= 3:
            self.stdout.write(said)
