"""What a project's workers do beside running jobs and looking after the stores."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from django_localqueue import outbox
from django_localqueue.backends.base import BaseQueue
from django_localqueue.management.code import has_tasks
from django_localqueue.worker.chores import Chore
from django_localqueue.worker.django import keep_connections_healthy

OUTBOX_INTERVAL = 0.5
OUTBOX_STEP = 100


def project_chores(queues: Sequence[BaseQueue]) -> list[Chore]:
    """Return the chores of a worker that serves these queues."""
    chores: list[Chore] = []
    if has_tasks():
        from django_localqueue.schedules.chore import Scheduler

        chores.append(Scheduler(queues))
    if outbox.is_used():
        chores.append(Outbox())
    return chores


class Outbox(Chore):
    """Moves jobs from the outbox tables to their queues."""

    name = "outbox"

    def run(self, worker: str, ended: threading.Event) -> float:
        from django_localqueue.outbox import mover

        keep_connections_healthy()
        try:
            while not ended.is_set() and mover.move(OUTBOX_STEP):
                pass
        except DatabaseError as error:
            if missing := mover.without_table():
                raise ImproperlyConfigured(
                    f"The outbox has no table in the database {', '.join(missing)}: run migrate,"
                    " with --database for each but 'default'."
                ) from error
            raise
        finally:
            keep_connections_healthy()
        return OUTBOX_INTERVAL
