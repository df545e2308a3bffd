"""The records of what workers share through a store: themselves, and schedules.

Times are integer microseconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

WorkerState = Literal["running", "quiet", "stopping"]
WorkerCommand = Literal["quiet", "resume", "stop"]
MissedPolicy = Literal["skip", "once", "all"]
OverlapPolicy = Literal["allow", "skip"]

WORKER_STATES: tuple[WorkerState, ...] = ("running", "quiet", "stopping")
#: What a worker can be asked to do, and the state that fulfils it.
WORKER_COMMANDS: dict[WorkerCommand, WorkerState] = {
    "quiet": "quiet",
    "resume": "running",
    "stop": "stopping",
}
MISSED_POLICIES: tuple[MissedPolicy, ...] = ("skip", "once", "all")
OVERLAP_POLICIES: tuple[OverlapPolicy, ...] = ("allow", "skip")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker runs.

    ``overdue`` says that it has run longer than it may, in a worker that can't end it.
    """

    id: str
    task: str | None
    queue: str
    started_at: int
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker, as it last reported itself.

    ``queues`` are names in the store; ``concurrency`` is how many jobs it runs at a time;
    ``counts`` is how many deliveries ended how (``done``, ``failed``, ``retried``,
    ``released``, ``lost``); ``rss`` is its memory in bytes, 0 where that isn't known.
    ``quiet`` workers claim nothing and stay.

    Filled by ``workers()``: ``seen_at``; ``command``, what it was asked and has not yet done;
    ``alive``, True while its process lives, False where its death is seen or, where that can't
    be seen, 90 seconds after its last report, None where neither is known.
    """

    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_at: int = 0
    queues: tuple[str, ...] = ()
    concurrency: int = 1
    running: tuple[RunningJob, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    rss: int = 0
    state: WorkerState = "running"
    seen_at: int = 0
    command: WorkerCommand | None = None
    alive: bool | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A recurring job.

    ``queue`` is the name of the queue that its jobs go to; ``expression`` and ``timezone`` say
    when; ``task``, ``args`` and ``kwargs`` what, and ``job`` the other fields of its ``NewJob``.
    ``missed`` says what becomes of times that
    passed while no worker ran: ``"skip"`` (none), ``"once"`` (the last of them), ``"all"``.
    ``overlap`` says whether a job is put while the one before waits or runs.

    Filled by ``schedules()``: ``next_at``, when its next job is due; ``last_at`` and ``last_id``,
    when the last one was due and its id; ``paused``; ``seen_at``, when a worker last found it in
    the code.
    """

    name: str
    expression: str
    task: str
    queue: str = "default"
    timezone: str = "UTC"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "allow"
    paused: bool = False
    next_at: int = 0
    last_at: int | None = None
    last_id: str | None = None
    seen_at: int = 0
