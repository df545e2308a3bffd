"""The engine's Python face: what crosses between Rust and Python.

Times are integer microseconds: wall time since the epoch, unless a name says
``boot``. Every call releases the GIL while it works or waits. Only
``django_localqueue.backends.sqlite`` uses this module.
"""

import builtins
from collections.abc import Sequence
from typing import Literal, final

__all__ = [
    "BUILD_PROFILE",
    "SQLITE_VERSION",
    "Attempt",
    "Error",
    "FailureGroup",
    "ManualClock",
    "Put",
    "Record",
    "Schedule",
    "Stats",
    "Store",
    "WorkerReport",
    "__version__",
    "after_fork",
    "before_fork",
]

__version__: str
#: "release" or "debug".
BUILD_PROFILE: str
SQLITE_VERSION: str

#: Payload, job_id, delay, priority, group, max_retries, task, headers, expires, unique key, for
#: how long it holds at least, retention.
_Message = tuple[
    bytes,
    str | None,
    int,
    int,
    str | None,
    int | None,
    str | None,
    bytes | None,
    int | None,
    str | None,
    int,
    int | None,
]

#: State, task, error class, text, group, reason, since, until, ids, min_attempts, failure.
_Filter = tuple[
    int,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    int | None,
    int | None,
    Sequence[str] | None,
    int | None,
    int | None,
]

#: A claimed job: index of its source, id, job_id, payload, attempts, receipt, end of its lease,
#: when it was put, priority, group, task, headers, max_retries, expires at, unique key, retention.
_Delivery = tuple[
    int,
    int,
    str | None,
    bytes,
    int,
    str,
    int,
    int,
    int,
    str | None,
    str | None,
    bytes | None,
    int | None,
    int | None,
    str | None,
    int | None,
]

@final
class ManualClock:
    """A clock for tests that moves only when told; shared by every store opened with it."""

    def __new__(cls, now: int = 1_700_000_000_000_000) -> ManualClock: ...
    def advance(self, seconds: float) -> None:
        """Let time pass: wall clock and boot clock, and wake waiting calls."""

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forth or back; the boot clock, and so every lease, is unmoved."""

    def reboot(self) -> None:
        """Give the machine another boot id, for stores opened from now on."""

    def now(self) -> int:
        """Return the wall time."""

@final
class Put:
    """What became of one message of ``Store.put``."""

    id: int
    created: bool
    state: int
    #: The public id of a job that was met by its unique key.
    met: str | None

@final
class Error:
    error_class: str
    message: str
    traceback: str
    place: str

@final
class Attempt:
    number: int
    worker: str
    started_at: int
    ended_at: int
    outcome: str
    error: Error | None

@final
class Record:
    """A stored job, in any state."""

    id: int
    job_id: str | None
    state: int
    at: int
    since: int
    payload: bytes
    attempts: int
    max_retries: int | None
    priority: int
    created_at: int
    group_id: str | None
    task: str | None
    headers: bytes | None
    reason: str | None
    failure: int | None
    error: Error | None
    started_at: int | None
    lease_expires_at: int | None
    worker: str | None
    result: bytes | None
    cancel_requested: bool
    expires_at: int | None
    unique_key: str | None
    retention: int | None
    progress: bytes | None
    original: bytes | None
    cursor: tuple[int, int]
    history: list[Attempt]

@final
class FailureGroup:
    id: int
    error_class: str
    place: str
    task: str
    total: int
    hour: int
    day: int
    week: int
    first_at: int
    last_at: int
    series: list[int]

@final
class Stats:
    ready: int
    delayed: int
    blocked: int
    processing: int
    expired: int
    acked: int
    failed: int
    paused: bool
    oldest_ready_at: int | None

@final
class WorkerReport:
    name: str
    seen_at: int
    alive: bool | None
    command: str | None
    record: bytes

@final
class Schedule:
    name: str
    queue: str
    next_at: int
    paused: bool
    last_at: int | None
    last_id: str | None
    seen_at: int
    timing: str
    record: bytes

@final
class Store:
    """One SQLite file with its named queues; threads share it, and so may several queues.

    One process opens a file once: the caller keeps a registry.
    """

    def __new__(
        cls,
        folder: str | None,
        *,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 30.0,
        clock: ManualClock | None = None,
    ) -> Store:
        """Open ``folder``/localqueue.db, making both where missing; None is a store in memory.

        Raises StoreUnavailable and its kinds, StoreBusy, StoreFull.
        """

    def put(self, queue: str, messages: Sequence[_Message], once: bool = False) -> list[Put]:
        """Store all messages or none; ``once``: none whose job_id came this way before."""

    def put_one(self, queue: str, payload: bytes) -> int:
        """``put`` of one message that is nothing but its payload; return its id."""

    def exchange(
        self,
        settlements: Sequence[
            tuple[str, int, str, str, int, int, bytes | None, tuple[str, str, str, str] | None, str]
        ],
        want: int,
        sources: Sequence[tuple[str, int, int]],
        *,
        round_robin: bool,
        min_priority: int,
        worker: str,
        timeout: float | None,
        limits: Sequence[tuple[int | None, int, int] | None] | None = None,
    ) -> tuple[list[str | None], list[_Delivery]]:
        """Settle, then claim.

        A settlement is queue, id, receipt, verb, delay, the queue's max_retries,
        result, error (class, message, traceback, place), reason; its result is None
        or why the lease was lost (expired, settled, unknown). A source is queue,
        lease in microseconds, max_retries. ``timeout`` 0 doesn't wait, None waits
        until there is a job or ``interrupt`` is called.
        """

    def interrupt(self) -> None: ...
    def extend_lease(
        self, queue: str, id: int, receipt: str, micros: int
    ) -> tuple[str | None, bool, int]:
        """Return why the lease was lost or None, cancel requested, the wall time of its end."""

    def progress(
        self, queue: str, id: int, receipt: str, progress: bytes
    ) -> tuple[str | None, bool]:
        """Return why the lease was lost or None, and whether cancel was requested."""

    def stats(self, queue: str) -> Stats: ...
    def lookup(self, queue: str, id: str) -> Record | None: ...
    def check(self) -> list[str]: ...
    def list(
        self, queue: str, filter: _Filter, limit: int, after: tuple[int, int] | None
    ) -> tuple[list[Record], tuple[int, int] | None]: ...
    def count(self, queue: str, filter: _Filter, cap: int) -> int: ...
    def apply(
        self,
        queue: str,
        action: str,
        filter: _Filter,
        as_of: int,
        limit: int,
        delay: int,
        target: str,
    ) -> tuple[int, int, int, bool]:
        """Return done, changed meanwhile, not found, and whether more are left."""

    def failures(
        self, queue: str, limit: int, after: tuple[int, int] | None
    ) -> builtins.list[FailureGroup]: ...
    def activity(
        self, queue: str, since: int, until: int, step: int
    ) -> builtins.list[tuple[int, int, int]]:
        """Return begin, acked and failed of each step; all times are multiples of a minute."""

    def list_failed(self, queue: str, limit: int, offset: int) -> builtins.list[Record]: ...
    def retry_failed(self, queue: str, id: str) -> bool | None:
        """Return None where there is no such job."""

    def cancel(self, queue: str, id: str) -> bool | None: ...
    def once_ids(self, queue: str, before: int, limit: int) -> builtins.list[str]: ...
    def forget_once(self, queue: str, ids: Sequence[str]) -> None: ...
    def edit(self, queue: str, id: str, payload: bytes) -> bool | None: ...
    def prune(self, queue: str, retention: int | None, limit: int) -> int: ...
    def purge(
        self,
        queue: str,
        finished_before: int,
        kinds: Sequence[Literal["acked", "failed", "discarded"]],
        limit: int | None,
    ) -> int: ...
    def reclaim(self, queue: str, max_retries: int) -> int: ...
    def set_paused(self, queue: str, paused: bool) -> None: ...
    def report_worker(self, name: str, record: bytes, done: str) -> str | None:
        """Return what the worker is asked to do; ``done`` is the command that it has fulfilled."""

    def workers(self) -> builtins.list[WorkerReport]: ...
    def command_worker(self, name: str, command: str) -> bool: ...
    def forget_worker(self, name: str) -> bool: ...
    def reclaim_from_dead(self, queue: str, max_retries: int) -> int: ...
    def take_back(self, queue: str, worker: str, max_retries: int) -> int: ...
    def duty(self, name: str, micros: int, worker: str) -> bool: ...
    def schedules(self) -> builtins.list[Schedule]: ...
    def save_schedule(
        self, name: str, queue: str, next_at: int, timing: str, record: bytes
    ) -> None:
        """``next_at`` counts where the schedule is new or its ``timing`` changed."""

    def fire_schedule(
        self,
        name: str,
        due_at: int,
        next_at: int,
        queue: str,
        job: _Message | None,
    ) -> builtins.list[Put] | None:
        """Return None where it isn't due at ``due_at``; without a job an empty list."""

    def pause_schedule(self, name: str, paused: bool, next_at: int | None) -> bool: ...
    def forget_schedule(self, name: str) -> bool: ...
    def backup(self, target: str) -> None: ...
    def vacuum(self) -> None: ...
    def now(self) -> int: ...
    def close(self) -> None: ...

def before_fork() -> None:
    """Close every store's connections; they reopen by themselves. Called by os.register_at_fork."""

def after_fork() -> None: ...
