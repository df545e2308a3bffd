"""Moving jobs from the outboxes to their queues, each once.

A batch is put in one transaction of its queue while its rows are locked in the database, and
then they are deleted. Killed in between, the mover leaves rows whose jobs were put; its successor
puts them with ``once``, so that nothing is put again, even what has meanwhile run and gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_localqueue import conf
from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, LocalQueueError, UnknownQueue
from django_localqueue.outbox import is_used
from django_localqueue.outbox.pending import PendingJob
from django_localqueue.queues import queues
from django_localqueue.types import NewJob

logger = logging.getLogger("django_localqueue.outbox")

#: Seconds for which a queue remembers what was put from an outbox, at least.
REMEMBERED = 86_400.0
#: Seconds between two looks for what may be forgotten.
FORGETTING = 3_600.0

_forget_at = 0.0


def databases() -> list[str]:
    """Return the aliases of the databases that have an outbox, as TASKS says."""
    found: dict[str, None] = {}
    for entry in conf.tasks().values():
        options = entry.get("OPTIONS") or {}
        if not isinstance(options, dict):
            continue
        if "databases" in options or options.get("outbox"):
            found.update(dict.fromkeys(options.get("databases") or [DEFAULT_DB_ALIAS]))
    return [alias for alias in found if alias in connections]


def without_table() -> list[str]:
    """Return the aliases of ``databases`` where the outbox has not been migrated."""
    from django_localqueue.outbox.models import OutboxJob

    table = OutboxJob._meta.db_table
    return [
        alias
        for alias in databases()
        if table not in connections[alias].introspection.table_names()
    ]


def move(limit: int = 500) -> int:
    """Move up to ``limit`` jobs of each outbox to each queue; return how many.

    To be called again and again by one worker; several at once do no harm. The health of the
    connections is the caller's care. Jobs of one transaction that are for one queue arrive in
    their order.

    Raises:
        DatabaseError: a database can't be used.
        NotStored, OutcomeUnknown: a queue can't be; what could be moved is moved.
    """
    if not is_used():
        return 0
    used = databases()
    moved = sum(move_from(alias, limit) for alias in used)
    global _forget_at
    if used and time.monotonic() >= _forget_at:
        _forget_at = time.monotonic() + FORGETTING
        forget()
    return moved


def move_from(database: str, limit: int = 500) -> int:
    """Move up to ``limit`` jobs for each queue from one database. Returns, raises as ``move``."""
    from django_localqueue.outbox.models import OutboxJob

    waiting = OutboxJob.objects.using(database).filter(error="")
    moved = 0
    trouble: LocalQueueError | None = None
    for alias in list(waiting.order_by("queue").values_list("queue", flat=True).distinct()):
        try:
            moved += _move_to(alias, database, limit)
        except LocalQueueError as error:  # a store that is down must not keep others waiting
            trouble = trouble or error
    if trouble is not None:
        raise trouble
    return moved


def _move_to(alias: str, database: str, limit: int) -> int:
    from django_localqueue.outbox.models import OutboxJob

    waiting = OutboxJob.objects.using(database).filter(error="", queue=alias)
    with transaction.atomic(using=database):
        # SQLite has no row locks, and must not look before it has the lock of all.
        waiting.filter(pk=-1).update(error="")
        rows = list(waiting.select_for_update().order_by("pk")[:limit])
        refused = _put(alias, [(row.pk, row.pending) for row in rows])
        for row in rows:
            if row.pk in refused:
                logger.error(
                    "The job %s (%s) in the outbox can't be put into %s: %s",
                    *(row.job_id, row.task, alias, refused[row.pk]),
                )
                OutboxJob.objects.using(database).filter(pk=row.pk).update(error=refused[row.pk])
        done = [row.pk for row in rows if row.pk not in refused]
        OutboxJob.objects.using(database).filter(pk__in=done).delete()
    return len(done)


def forget() -> int:
    """Let the queues forget jobs that were moved long ago; return how many.

    Those whose rows are still in an outbox are remembered on.
    """
    forgotten = 0
    for alias in conf.queue_settings():
        queue = queues[alias]
        while ids := queue.once_ids(REMEMBERED, 500):
            kept = _still_there(ids)
            gone = [id for id in ids if id not in kept]
            queue.forget_once(gone)
            forgotten += len(gone)
            if len(ids) < 500 or not gone:
                break
    return forgotten


def _still_there(ids: Sequence[str]) -> set[str]:
    from django_localqueue.outbox.models import OutboxJob

    found: set[str] = set()
    for database in databases():
        rows = OutboxJob.objects.using(database).filter(job_id__in=ids)
        found.update(rows.values_list("job_id", flat=True))
    return found


def _put(alias: str, rows: Sequence[tuple[int, str]]) -> dict[int, str]:
    """Put the jobs of rows; return why some can't be, by the keys of their rows."""
    try:
        queue = queues[alias]
    except (UnknownQueue, ImproperlyConfigured) as error:
        return dict.fromkeys((key for key, _ in rows), str(error))
    now = queue.now()
    jobs: dict[int, NewJob] = {}
    refused: dict[int, str] = {}
    for key, pending in rows:
        try:
            jobs[key] = PendingJob.loads(pending).new_job(now)
        except (InvalidInput, ValueError, TypeError, KeyError) as error:
            refused[key] = str(error)
    try:
        if jobs:
            queue.put_many(jobs.values(), once=True)
    except InvalidInput:
        refused.update(_one_by_one(queue, jobs))
    return refused


def _one_by_one(queue: BaseQueue, jobs: Mapping[int, NewJob]) -> dict[int, str]:
    refused: dict[int, str] = {}
    for key, job in jobs.items():
        try:
            queue.put_many([job], once=True)
        except InvalidInput as error:
            refused[key] = str(error)
    return refused
