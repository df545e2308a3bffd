"""Between rows and the records of ``django_localqueue.types``; bytes and texts as TEXT."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from django_localqueue.backends.arguments import HEADERS, Message, Settlement, progress_record
from django_localqueue.backends.leases import undecodable
from django_localqueue.backends.rqlite import schema
from django_localqueue.exceptions import (
    InvalidInput,
    StoreCorrupt,
)
from django_localqueue.types import STATES, Attempt, ErrorRecord, Job, JobId, JobRecord, Reason

if TYPE_CHECKING:
    from django_localqueue.backends.base import BaseQueue

_ENCODED = "base64:"

#: A priority's weight in the cursor of ready jobs: above any time in microseconds.
PRIORITY_STEP = 1 << 54


class RecordRow(NamedTuple):
    """A row that ``RECORD`` selects."""

    id: int
    job_id: str | None
    state: int
    at: int
    since: int
    attempts: int
    max_retries: int | None
    prio: int
    created: int
    grp: str | None
    task: str | None
    headers: str | None
    reason: str | None
    err_class: str | None
    err_message: str | None
    err_place: str | None
    started: int | None
    worker: str | None
    result: str | None
    cancel: int
    payload: str
    failure: int | None
    expires: int | None
    unique_key: str | None
    retention: int | None
    progress: str | None
    original: str | None


#: The columns of a message ``m`` that ``RecordRow`` has.
RECORD = ", ".join(f"m.{column}" for column in RecordRow._fields)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def document(value: Any) -> str:
    """Return a parameter that carries any texts and numbers: no text in it is changed."""
    return _ENCODER.encode(value)


def stored(value: bytes | None) -> str | None:
    """Return bytes as the TEXT that holds them: themselves if they are plain UTF-8, else base64."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text or text.startswith(_ENCODED):
        return _ENCODED + base64.b64encode(value).decode()
    return text


def loaded(text: str) -> bytes:
    """Return the bytes that ``stored`` was given."""
    if not text.startswith(_ENCODED):
        return text.encode()
    try:
        return base64.b64decode(text[len(_ENCODED) :], validate=True)
    except binascii.Error:
        raise StoreCorrupt("A stored value begins with 'base64:' and is not base64.") from None


def _stored_text(text: str) -> str:
    return cast("str", stored(text.encode()))


def put_row(message: Message, once: bool = False) -> list[Any]:
    """Return a message as the view ``localqueue_do_put`` takes it."""
    return [
        stored(message.payload),
        message.job_id,
        message.delay,
        message.priority,
        message.group_id,
        message.max_retries,
        message.task,
        stored(message.headers),
        message.expires,
        message.unique_key,
        message.unique_for,
        message.retention,
        1 if once else None,
    ]


def put_ids(
    messages: Sequence[Message], first: int, now: int, stands: Iterable[Sequence[Any]]
) -> list[JobId]:
    """Return what a put is answered: ids from ``first`` on for those that were created.

    ``stands`` has job_id, id, state and time of those that are not just ready or delayed, and
    the unique key of those that hold one that was asked for.
    """
    found: dict[object, tuple[int, int, int]] = {}
    holders: dict[str, tuple[str | None, int, int, int]] = {}
    for job_id, id, state, at, unique_key in stands:
        found[id if job_id is None else job_id] = id, state, at
        if unique_key is not None:
            holders[unique_key] = job_id, id, state, at
    following = first
    met: set[object] = set()
    ids: list[JobId] = []
    for message in messages:
        # Where a late copy of the request finds the job gone, it is told as it was put.
        name = following if message.job_id is None else message.job_id
        if message.unique_key in holders and (message.job_id is None or name not in found):
            holder, id, state, at = holders[message.unique_key]
            if message.job_id is not None or id != following:
                public = str(id) if holder is None else holder
                ids.append(JobId(public, False, STATES[shown(state, at, now)]))
                continue
        waits = schema.DELAYED if message.delay else schema.READY
        id, state, at = found.get(name, (following, waits, now + message.delay))
        created = id >= first and name not in met
        following += created
        met.add(name)
        public = str(id) if message.job_id is None else message.job_id
        ids.append(JobId(public, created, STATES[shown(state, at, now)]))
    return ids


def settle_row(item: Settlement) -> list[Any]:
    """Return a settlement as ``statements.settle`` takes it."""
    job = item.job
    if item.verb not in schema.VERBS:
        known = ", ".join(schema.VERBS)
        raise InvalidInput(f"There is no verb {item.verb!r}; use one of {known}.")
    return [
        job.queue.name,
        job.key,
        job.receipt,
        schema.VERBS[item.verb],
        item.delay if item.verb == "nack" else 0,
        job.queue.max_retries,
        stored(item.result),
        item.reason,
        *_error_row(item.error),
        job.group_id is not None or job.unique_key is not None,
    ]


def undecodable_row(job: Job, error: Exception) -> list[Any]:
    """Return the settlement that makes a delivery a dead letter, its bytes kept."""
    return settle_row(Settlement(job, "fail", 0, None, undecodable(error), "undecodable"))


def _error_row(error: ErrorRecord | None) -> list[str | None]:
    if error is None:
        return [None, None, None, None]
    texts = (error.error_class, error.message, error.place, error.traceback)
    return [_stored_text(text) for text in texts]


def job(queue: BaseQueue, row: Sequence[Any], lease_expires_at: int) -> Job:
    """Return a delivery without its data, from a row of ``statements.CLAIMED``."""
    key, job_id, receipt, attempts, max_retries, prio, grp, task, created, headers, *rest = row
    expires, unique_key, retention, *_ = rest
    return Job(
        queue,
        id=str(key) if job_id is None else job_id,
        key=key,
        data=None,
        attempts=attempts,
        receipt=receipt,
        lease_expires_at=lease_expires_at,
        created_at=created,
        priority=prio,
        group_id=grp,
        task=task,
        headers=None if headers is None else HEADERS.loads(loaded(headers)),
        max_retries=max_retries,
        expires_at=expires,
        unique_key=unique_key,
        retention=retention,
    )


def shown(state: int, at: int, now: int) -> int:
    """Return the state as users see it: a delayed job that is due is ready, promoted or not."""
    return schema.READY if state == schema.DELAYED and at <= now else state


def cursor(row: RecordRow) -> tuple[int, int]:
    """Return the place of a row in the list of its state."""
    if row.state == schema.READY:
        return (100 - row.prio) * PRIORITY_STEP + row.since, row.id
    return (0, row.id) if row.state == schema.BLOCKED else (row.at, row.id)


def job_record(queue: str, row: RecordRow, times: tuple[int, int]) -> JobRecord:
    """Return the record of a row; ``times`` are wall time and lease time."""
    now, lease_now = times
    state = shown(row.state, row.at, now)
    waiting = {schema.READY: row.since, schema.BLOCKED: row.at}
    return JobRecord(
        id=str(row.id) if row.job_id is None else row.job_id,
        queue=queue,
        state=STATES[state],
        payload=loaded(row.payload),
        cursor=cursor(row),
        created_at=row.created,
        attempts=row.attempts,
        max_retries=row.max_retries,
        priority=row.prio,
        job_id=row.job_id,
        group_id=row.grp,
        task=row.task,
        headers={} if row.headers is None else HEADERS.loads(loaded(row.headers)),
        reason=cast("Reason | None", row.reason),
        failure=None if row.failure is None else str(row.failure),
        error=error_record(row.err_class, row.err_message, row.err_place, ""),
        waiting_since=waiting.get(state),
        due_at=row.at if state == schema.DELAYED else None,
        started_at=row.started,
        lease_expires_at=now + row.at - lease_now if state == schema.PROCESSING else None,
        finished_at=row.at if state in (schema.ACKED, schema.FAILED) else None,
        worker=row.worker,
        result=None if row.result is None else loaded(row.result),
        cancel_requested=bool(row.cancel),
        expires_at=row.expires,
        unique_key=row.unique_key,
        retention=row.retention,
        progress=None if row.progress is None else progress_record(loaded(row.progress)),
        original_payload=None if row.original is None else loaded(row.original),
    )


def error_record(
    error_class: str | None, message: str | None, place: str | None, traceback: str | None
) -> ErrorRecord | None:
    """Return what is stored of an error, None if there was none."""
    if message is None:
        return None
    texts = (error_class or "", message, traceback or "", place or "")
    return ErrorRecord(*(loaded(text).decode() for text in texts))


def attempt(row: Sequence[Any]) -> Attempt:
    """Return a row of the history."""
    number, worker, started, ended, outcome, *error = row
    return Attempt(number, worker, started, ended, outcome, error_record(*error))


def with_history(record: JobRecord, attempts: list[Attempt]) -> JobRecord:
    """Return the record with its ended attempts, and the traceback of the last error.

    An attempt that was acked is told by the job's own row.
    """
    error = record.error
    last = next((one.error for one in reversed(attempts) if one.error is not None), None)
    if error is not None and last is not None:
        error = replace(error, traceback=last.traceback)
    if record.state == "acked" and record.finished_at is not None:
        started = record.finished_at if record.started_at is None else record.started_at
        attempts = [
            *attempts,
            Attempt(record.attempts, record.worker or "", started, record.finished_at, "ack"),
        ]
    return replace(record, error=error, history=tuple(attempts))
