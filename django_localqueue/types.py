"""The records that the queues take and return.

Times in records are integer microseconds since the epoch (UTC); arguments of
functions are seconds.
"""

from __future__ import annotations

import datetime
import traceback as tracebacks
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from django_localqueue.exceptions import LocalQueueError

if TYPE_CHECKING:
    from django_localqueue.backends.base import BaseQueue

State = Literal["ready", "delayed", "blocked", "processing", "acked", "failed"]
Verb = Literal["ack", "nack", "fail", "release"]
Action = Literal["retry", "run_now", "delay", "move", "cancel", "discard", "purge"]
Reason = Literal["exhausted", "failed", "cancelled", "expired", "undecodable", "discarded"]

STATES: tuple[State, ...] = ("ready", "delayed", "blocked", "processing", "acked", "failed")
REASONS: tuple[Reason, ...] = (
    "exhausted",
    "failed",
    "cancelled",
    "expired",
    "undecodable",
    "discarded",
)

MICROSECONDS = 1_000_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MAX_ERROR_MESSAGE = 8_000
MAX_TRACEBACK = 64_000


def to_datetime(microseconds: int) -> datetime.datetime:
    """Return the aware UTC datetime of a record's time.

    Exact to the microsecond, unlike division by a million as a float.
    """
    return EPOCH + datetime.timedelta(microseconds=microseconds)


class JobId(str):
    """The public id of a job, as ``put`` returns it.

    ``created`` is False where the queue already had a job of this ``job_id``;
    ``state`` is then the state of the job that was met, else the new job's.
    """

    __slots__ = ("created", "state")
    created: bool
    state: State

    def __new__(cls, value: str, created: bool = True, state: State = "ready") -> JobId:
        self = str.__new__(cls, value)
        self.created = created
        self.state = state
        return self


@dataclass(frozen=True, slots=True)
class NewJob:
    """One job for ``put_many``: the arguments of ``put``."""

    data: Any
    job_id: str | None = None
    delay: float = 0
    priority: int = 0
    group_id: str | None = None
    max_retries: int | None = None
    task: str | None = None
    headers: Mapping[str, Any] | None = None
    expires: float | None = None
    unique_key: str | None = None
    unique_seconds: float = 0
    retention: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is, as its worker last said: ``done`` of ``total``, a note, and when.

    ``attempt`` is the delivery that said so; ``at`` is in microseconds.
    """

    done: float
    total: float | None = None
    note: str = ""
    attempt: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """What is kept of an error: class path, message, traceback text and place (file:line)."""

    error_class: str = ""
    message: str = ""
    traceback: str = ""
    place: str = ""

    @classmethod
    def of(cls, error: ErrorRecord | BaseException | str | None) -> ErrorRecord | None:
        """Return the record of an exception or a text; records and None pass through.

        Text that UTF-8 can't carry is kept with escapes, and long text is cut in
        its middle, so that recording an error can never fail.
        """
        if error is None or isinstance(error, cls):
            return error
        if not isinstance(error, BaseException):
            return cls(message=_storable(str(error), MAX_ERROR_MESSAGE))
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", None):
            name = f"{kind.__module__}.{name}"
        try:
            message = str(error)
        except Exception as broken:
            message = f"<the message could not be read: {type(broken).__name__}>"
        frames = tracebacks.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        try:
            text = "".join(tracebacks.format_exception(error))
        except Exception as broken:
            text = f"<the traceback could not be formatted: {type(broken).__name__}>"
        return cls(
            error_class=_storable(name, 500),
            message=_storable(message, MAX_ERROR_MESSAGE),
            traceback=_storable(text, MAX_TRACEBACK),
            place=_storable(place, 1_000),
        )


def _storable(text: str, limit: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery of a job, ended.

    ``outcome`` is ``"nack"``, ``"fail"``, ``"lapsed"`` (its lease ran out: the
    worker died or stalled) or ``"ack"``.
    """

    number: int
    worker: str
    started_at: int
    ended_at: int
    outcome: str
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A stored job in any state, as ``lookup``, ``list`` and ``list_failed`` return it.

    ``cursor`` is what ``list`` takes as ``after`` to go on behind this record.
    ``history`` holds the ended attempts, oldest first; it and the traceback of ``error``
    are filled by ``lookup`` only. ``failure`` is the key of the failure group of a dead letter.
    ``expires_at`` is until when the first delivery may begin,
    ``retention`` (microseconds) the job's own, and ``original_payload`` what was put, where
    the payload was edited since.
    """

    id: str
    queue: str
    state: State
    payload: bytes
    cursor: tuple[int, int]
    created_at: int
    attempts: int = 0
    max_retries: int | None = None
    priority: int = 0
    job_id: str | None = None
    group_id: str | None = None
    task: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    reason: Reason | None = None
    failure: str | None = None
    error: ErrorRecord | None = None
    waiting_since: int | None = None
    due_at: int | None = None
    started_at: int | None = None
    lease_expires_at: int | None = None
    finished_at: int | None = None
    worker: str | None = None
    result: bytes | None = None
    cancel_requested: bool = False
    history: tuple[Attempt, ...] = ()
    expires_at: int | None = None
    unique_key: str | None = None
    retention: int | None = None
    progress: Progress | None = None
    original_payload: bytes | None = None


class Job:
    """A job in the hands of a worker: what ``get`` returns and every settling verb takes.

    Attributes: ``id``, ``data`` (the decoded payload), ``attempts`` (this delivery
    included), ``receipt`` (the token of this delivery), ``lease_expires_at``
    (microseconds since the epoch), ``priority``, ``group_id``, ``task``,
    ``headers``, ``max_retries`` (None: the queue's), ``created_at``, ``expires_at``,
    ``unique_key``, ``retention`` (microseconds; None: the queue's), ``queue``.
    """

    __slots__ = (
        "attempts",
        "created_at",
        "data",
        "expires_at",
        "group_id",
        "headers",
        "id",
        "key",
        "lease_expires_at",
        "max_retries",
        "priority",
        "queue",
        "receipt",
        "retention",
        "task",
        "unique_key",
    )

    def __init__(
        self,
        queue: BaseQueue,
        *,
        id: str,
        key: int,
        data: Any,
        attempts: int,
        receipt: str,
        lease_expires_at: int,
        created_at: int,
        priority: int = 0,
        group_id: str | None = None,
        task: str | None = None,
        headers: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
        expires_at: int | None = None,
        unique_key: str | None = None,
        retention: int | None = None,
    ) -> None:
        self.queue = queue
        self.id = id
        self.key = key
        self.data = data
        self.attempts = attempts
        self.receipt = receipt
        self.lease_expires_at = lease_expires_at
        self.created_at = created_at
        self.priority = priority
        self.group_id = group_id
        self.task = task
        self.headers = {} if headers is None else headers
        self.max_retries = max_retries
        self.expires_at = expires_at
        self.unique_key = unique_key
        self.retention = retention

    def extend_lease(self, seconds: float) -> bool:
        """Keep this job for at least ``seconds`` from now; see ``BaseQueue.extend_lease``."""
        return self.queue.extend_lease(self, seconds)

    def progress(self, done: float, total: float | None = None, note: str = "") -> bool:
        """Say how far this job is; see ``BaseQueue.progress``."""
        return self.queue.progress(self, done, total, note)

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.queue.name!r}, attempt {self.attempts}>"


@dataclass(frozen=True, slots=True)
class Settle:
    """How one claimed job ended, for ``exchange``."""

    job: Job
    verb: Verb
    delay: float = 0
    result: Any = None
    error: ErrorRecord | BaseException | str | None = None
    reason: Reason = "failed"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What ``exchange`` did: one result for each settled job, and the jobs it claimed.

    A result is None where the settle holds, else the error, ``LeaseExpired`` where
    the lease was lost.
    """

    results: list[LocalQueueError | None]
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Stats(Mapping[str, Any]):
    """One consistent snapshot of a queue; also readable as a mapping.

    ``ready`` includes ``delayed`` (not due yet) and ``blocked`` (behind another job
    of their group); ``processing`` includes ``expired`` (lease ran out, not yet
    reclaimed). ``oldest_ready_at`` is since when the job has waited that has waited
    longest among those that could be claimed now.
    """

    ready: int = 0
    delayed: int = 0
    blocked: int = 0
    processing: int = 0
    expired: int = 0
    acked: int = 0
    failed: int = 0
    paused: bool = False
    oldest_ready_at: int | None = None

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs of one queue ``list``, ``count`` and ``apply`` mean.

    ``text`` is looked for, without regard to case, in error class, message and
    place, task and id; ``error_class``, ``task`` and ``group_id`` are compared
    whole. ``since`` and ``until`` bound the time that orders the state: finished
    (acked, failed), due (delayed), lease end (processing: not bounded), waiting
    since (ready). ``ids`` are public ids; ``min_attempts`` deliveries at least;
    ``failure`` is the ``key`` of a failure group, whose dead letters are meant.
    """

    state: State = "failed"
    task: str | None = None
    error_class: str | None = None
    text: str | None = None
    group_id: str | None = None
    reason: Reason | None = None
    since: int | None = None
    until: int | None = None
    ids: tuple[str, ...] | None = None
    min_attempts: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dead letters of a queue with one error class at one place in one task.

    ``total`` are those that are dead letters now; ``hour``, ``day`` and ``week`` those of them
    that failed in that time, rounded up to five minutes; ``series`` those of the week, a
    number for each six hours, oldest first. ``error_class``, ``place`` and ``task`` are empty
    where they aren't known. ``cursor`` is what ``failures`` takes as ``after``.
    """

    key: str
    error_class: str
    place: str
    task: str
    total: int
    hour: int
    day: int
    week: int
    first_at: int
    last_at: int
    series: tuple[int, ...] = ()

    @property
    def cursor(self) -> tuple[int, int]:
        """Where a list of groups goes on behind this one."""
        return self.last_at, int(self.key)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a queue did in one step of time that begins at ``at``.

    ``acked`` jobs were done; ``failed`` became dead letters by an error, whatever became of
    them since.
    """

    at: int
    acked: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Records of ``list`` and where to go on.

    ``next`` is the cursor for the next page or None at the end. A search for
    something rare looks at a bounded number of jobs at a time: a page can then be
    short, even empty, and still have a ``next``.
    """

    records: list[JobRecord]
    next: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` did: jobs done, jobs that had changed meanwhile, ids not found.

    ``more`` is True where the limit was reached with jobs left that match.
    """

    done: int = 0
    changed: int = 0
    not_found: int = 0
    more: bool = False
