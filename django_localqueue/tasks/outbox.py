"""Calls of tasks in the outbox: written, found, cancelled. Needs the outbox' app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_localqueue.outbox.models import OutboxJob
from django_localqueue.outbox.pending import PendingJob
from django_localqueue.tasks import results
from django_localqueue.tasks.calls import Prepared
from django_localqueue.tasks.compat import TaskResultStatus
from django_localqueue.types import ErrorRecord


def write(calls: Sequence[Prepared], database: str) -> None:
    """Write calls into the outbox of a database, in the transaction that is open there."""
    OutboxJob.objects.using(database).bulk_create(
        [
            OutboxJob(
                job_id=one.result.id,
                queue=one.alias,
                backend=one.result.backend,
                task=one.pending.job["task"],
                pending=one.pending.dumps(),
            )
            for one in calls
        ]
    )


def find(
    id: str, databases: Sequence[str], backend: str, moved: Mapping[str, str]
) -> results.LocalTaskResult | None:
    """Return the result of a call that waits in an outbox; raises as ``find_task`` does."""
    row = _row(id, databases, backend)
    if row is None:
        return None
    pending = PendingJob.loads(row.pending)
    task = results.find_task(row.task, moved)
    errors = [results.task_error(ErrorRecord(message=row.error))] if row.error else []
    if not errors:
        said = pending.job["priority"], pending.job["headers"]
        task = results.variant(task, *said, row.queue, backend)
    data = pending.job["data"]
    return results.make(
        task,
        id=row.job_id,
        status=TaskResultStatus.FAILED if errors else TaskResultStatus.READY,
        enqueued_at=None,
        args=data["args"],
        kwargs=data["kwargs"],
        backend=backend,
        errors=errors,
    )


def cancel(id: str, databases: Sequence[str], backend: str) -> bool:
    """Take a call out of the outbox; False where none has it (any more)."""
    row = _row(id, databases, backend)
    if row is None:
        return False
    deleted, _ = OutboxJob.objects.using(row._state.db).filter(pk=row.pk).delete()
    return bool(deleted)


def _row(id: str, databases: Sequence[str], backend: str) -> OutboxJob | None:
    for database in databases:
        rows = OutboxJob.objects.using(database).filter(job_id=id, backend=backend)
        for row in rows[:1]:
            assert isinstance(row, OutboxJob)
            return row
    return None
