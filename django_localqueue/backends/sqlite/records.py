"""Between the engine's records and those of ``django_localqueue.types``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from django_localqueue.backends import leases
from django_localqueue.backends.arguments import (
    HEADERS,
    Message,
    Settlement,
    failure_number,
    progress_record,
)
from django_localqueue.types import (
    STATES,
    Attempt,
    ErrorRecord,
    FailureGroup,
    JobFilter,
    JobId,
    JobRecord,
    Reason,
)

if TYPE_CHECKING:
    from django_localqueue import _native

READY, DELAYED, BLOCKED, _PROCESSING, ACKED, FAILED = range(len(STATES))


def job_record(queue: str, record: _native.Record) -> JobRecord:
    """Return the engine's record of a job of the queue named ``queue``."""
    state, at = record.state, record.at
    return JobRecord(
        id=str(record.id) if record.job_id is None else record.job_id,
        queue=queue,
        state=STATES[state],
        payload=record.payload,
        cursor=record.cursor,
        created_at=record.created_at,
        attempts=record.attempts,
        max_retries=record.max_retries,
        priority=record.priority,
        job_id=record.job_id,
        group_id=record.group_id,
        task=record.task,
        headers={} if record.headers is None else HEADERS.loads(record.headers),
        reason=cast("Reason | None", record.reason),
        failure=None if record.failure is None else str(record.failure),
        error=_error(record.error),
        waiting_since=record.since if state == READY else at if state == BLOCKED else None,
        due_at=at if state == DELAYED else None,
        started_at=record.started_at,
        lease_expires_at=record.lease_expires_at,
        finished_at=at if state in (ACKED, FAILED) else None,
        worker=record.worker,
        result=record.result,
        cancel_requested=record.cancel_requested,
        history=tuple(
            Attempt(
                attempt.number,
                attempt.worker,
                attempt.started_at,
                attempt.ended_at,
                attempt.outcome,
                _error(attempt.error),
            )
            for attempt in record.history
        ),
        expires_at=record.expires_at,
        unique_key=record.unique_key,
        retention=record.retention,
        progress=progress_record(record.progress),
        original_payload=record.original,
    )


def _error(error: _native.Error | None) -> ErrorRecord | None:
    if error is None:
        return None
    return ErrorRecord(error.error_class, error.message, error.traceback, error.place)


def native_error(error: ErrorRecord | None) -> tuple[str, str, str, str] | None:
    """Return the error as the engine takes it."""
    if error is None:
        return None
    return error.error_class, error.message, error.traceback, error.place


def put_ids(messages: Sequence[Message], stored: Sequence[_native.Put]) -> list[JobId]:
    """Return the ids that ``put`` gives for what the engine stored."""
    ready = STATES[0]
    ids = []
    for message, put in zip(messages, stored, strict=True):
        created, state = put.created, put.state
        if created and not state and message.job_id is None:  # most jobs: the shortest way
            ids.append(JobId(str(put.id), True, ready))
        else:
            id = put.met or (str(put.id) if message.job_id is None else message.job_id)
            ids.append(JobId(id, created, STATES[state]))
    return ids


def failure_group(group: _native.FailureGroup) -> FailureGroup:
    """Return the engine's group."""
    return FailureGroup(
        str(group.id),
        group.error_class,
        group.place,
        group.task,
        group.total,
        group.hour,
        group.day,
        group.week,
        group.first_at,
        group.last_at,
        tuple(group.series),
    )


def native_filter(filter: JobFilter) -> _native._Filter:
    """Return the filter as the engine takes it."""
    return (
        STATES.index(filter.state),
        filter.task,
        filter.error_class,
        filter.text,
        filter.group_id,
        filter.reason,
        filter.since,
        filter.until,
        filter.ids,
        filter.min_attempts,
        None if filter.failure is None else failure_number(filter.failure),
    )


NativeSettlement = tuple[
    str, int, str, str, int, int, bytes | None, tuple[str, str, str, str] | None, str
]


def native_settlement(item: Settlement) -> NativeSettlement:
    """Return the settlement as the engine takes it."""
    job = item.job
    queue = job.queue
    return (
        queue.name,
        job.key,
        job.receipt,
        item.verb,
        item.delay,
        queue.max_retries,
        item.result,
        native_error(item.error),
        item.reason,
    )


def undecodable(queue: str, delivery: _native._Delivery, error: Exception) -> NativeSettlement:
    """Return the settlement that makes a delivery of ``queue`` a dead letter, its bytes kept."""
    record = native_error(leases.undecodable(error))
    return queue, delivery[1], delivery[5], "fail", 0, 0, None, record, "undecodable"
