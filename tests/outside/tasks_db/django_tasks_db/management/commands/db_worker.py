"""``db_worker`` with the flags that the suite gives it: it is our ``runqueueworker``."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

LOGGERS = ("django.tasks", "django_tasks")


class Command(BaseCommand):
    """Translates the flags, and shows the tasks' own log as ``db_worker --verbosity 3`` does."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--batch", action="store_true")
        parser.add_argument("--interval", type=float, default=1.0)
        parser.add_argument("--no-startup-delay", action="store_false", dest="startup_delay")
        parser.add_argument("--worker-id", default=None)
        parser.add_argument("--queue-name", default="default")
        parser.add_argument("--exclude-queues", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        shown = options["verbosity"] >= 3
        handler = logging.StreamHandler(self.stdout)
        loggers = [logging.getLogger(name) for name in LOGGERS] if shown else []
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
        try:
            call_command(
                "runqueueworker",
                queue=options["queue_name"].split(","),
                exclude_queue=[name for name in options["exclude_queues"].split(",") if name],
                burst=options["batch"],
                threads=1,
                name=options["worker_id"],
                verbosity=0,
            )
            if shown:
                self.stdout.write("exiting gracefully")
        finally:
            for logger in loggers:
                logger.removeHandler(handler)
