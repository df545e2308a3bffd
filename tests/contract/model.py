"""The rules of the queues in plain Python: an oracle to hold the real ones against.

Times are integer microseconds. There are two clocks: the wall clock orders and
delays, the boot clock ends leases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND = 1_000_000
PROMOTED_AT_A_TIME = 64

WAITING = ("ready", "delayed", "blocked")
LIVE = (*WAITING, "processing")
FINISHED = ("acked", "failed")


@dataclass(eq=False)
class Delivery:
    """One time that a job was handed out."""

    receipt: str
    deadline: int
    ended: str | None = None  # the verb that settled it, or "lapsed"
    answerable: bool = True  # the job still remembers how it ended


@dataclass(eq=False)
class Job:
    """A job, and where it stands.

    ``own`` is since when it waits by itself, without regard to its group: its put,
    due time, nack, lapse or retry.
    """

    id: str
    number: int
    data: object
    priority: int
    group: str | None
    max_retries: int
    own: int
    due: int | None = None
    state: str = "blocked"
    since: int = 0
    attempts: int = 0
    reason: str | None = None
    result: object = None
    finished: int = 0
    cancelled: bool = False
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(eq=False)
class Queue:
    name: str
    lease: int
    max_retries: int
    paused: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    #: When each group with live jobs was last served, as its leads hand it on.
    served: dict[str, int] = field(default_factory=dict)


class Model:
    """A store with its queues. Methods are named as those of the real queues."""

    def __init__(self, wall: int) -> None:
        self.wall = wall
        self.boot = 0
        self.last_id = 0
        self.queues: dict[str, Queue] = {}

    # ---- time

    def advance(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.boot += round(seconds * SECOND)

    def step_wall(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)

    def stamp(self) -> int:
        """Now, as a time to wait since: never earlier than what was put before."""
        return max(self.wall, self.last_id)

    # ---- putting

    def put(
        self,
        queue: Queue,
        data: object,
        *,
        delay: float = 0,
        priority: int = 0,
        group: str | None = None,
        job_id: str | None = None,
        max_retries: int | None = None,
    ) -> tuple[Job, bool]:
        """Return the job, and whether it is new."""
        if job_id is not None and job_id in queue.jobs:
            return queue.jobs[job_id], False
        self.last_id = number = max(self.wall, self.last_id + 1)
        job = Job(
            id=str(number) if job_id is None else job_id,
            number=number,
            data=data,
            priority=priority,
            group=group,
            max_retries=queue.max_retries if max_retries is None else max_retries,
            own=number,
        )
        queue.jobs[job.id] = job
        if delay:
            job.due = job.own = self.wall + round(delay * SECOND)
        self._arrive(queue, job)
        return job, True

    # ---- places

    def _arrive(self, queue: Queue, job: Job) -> None:
        """A job comes (back) into line: at its own place, or at its group's."""
        job.state = "blocked"
        if job.group is None:
            self._place(queue, job)
        else:
            self._choose_lead(queue, job.group)

    def _choose_lead(self, queue: Queue, group: str) -> None:
        """The live job put first leads, and the others wait behind it."""
        live = [job for job in queue.jobs.values() if job.group == group and job.state in LIVE]
        live.sort(key=lambda job: job.number)
        if not live:
            queue.served.pop(group, None)
            return
        if any(job.state == "processing" for job in live):
            return
        lead, *others = live
        for job in others:
            job.state = "blocked"
        if lead.state == "blocked":
            self._place(queue, lead)

    def _place(self, queue: Queue, job: Job) -> None:
        if job.due is not None and job.due > self.wall:
            job.state = "delayed"
        else:
            self._make_ready(queue, job)

    def _make_ready(self, queue: Queue, job: Job) -> None:
        job.state, job.due = "ready", None  # due once is due for good
        job.since = job.own
        if job.group is not None:
            job.since = max(job.own, queue.served.get(job.group, 0))

    def _finish(self, queue: Queue, job: Job, state: str, reason: str | None) -> None:
        if job.group is not None and job.state == "ready":
            queue.served[job.group] = job.since  # a lead that goes unclaimed hands its own time on
        job.state, job.reason, job.finished = state, reason, self.wall
        if job.group is not None:
            self._choose_lead(queue, job.group)

    def _give_back(self, queue: Queue, job: Job, delay: float = 0) -> None:
        """A delivery ended without success: the job waits again, or is used up."""
        if job.cancelled:
            self._finish(queue, job, "failed", "cancelled")
        elif job.attempts > job.max_retries:
            self._finish(queue, job, "failed", "exhausted")
        else:
            job.own, job.due = self.stamp(), None
            if job.group is None:
                job.own = max(job.own, job.since)  # not ahead of the place it had
            if delay:
                job.own = job.due = self.wall + round(delay * SECOND)
            self._arrive(queue, job)

    # ---- claiming

    def lapsed(self, job: Job) -> bool:
        return job.state == "processing" and job.deliveries[-1].deadline <= self.boot

    def _reclaim(self, queue: Queue, limit: int | None = None) -> int:
        late = [job for job in queue.jobs.values() if self.lapsed(job)]
        late.sort(key=lambda job: (job.deliveries[-1].deadline, job.number))
        late = late[:limit]
        for job in late:
            job.deliveries[-1].ended = "lapsed"
            self._give_back(queue, job)
        return len(late)

    def promote(self, queue: Queue) -> None:
        """What a claim does to each of its queues before it picks: lapsed and due become ready."""
        if queue.paused:
            return
        self._reclaim(queue, PROMOTED_AT_A_TIME)
        due = [job for job in queue.jobs.values() if self.due(job)]
        due.sort(key=lambda job: (job.own, job.number))
        for job in due[:PROMOTED_AT_A_TIME]:
            self._make_ready(queue, job)

    def due(self, job: Job) -> bool:
        return job.state == "delayed" and job.due is not None and job.due <= self.wall

    def line(self, queue: Queue, floor: int = -100) -> list[Job]:
        """Ready jobs in the order in which they will be taken."""
        ready = [
            job for job in queue.jobs.values() if job.state == "ready" and job.priority >= floor
        ]
        return sorted(ready, key=lambda job: (-job.priority, job.since, job.number))

    def claim(self, queue: Queue, want: int, floor: int = -100) -> list[Job]:
        """Hand out up to ``want`` jobs; the caller fills in the receipts."""
        if queue.paused or want == 0:
            return []
        self.promote(queue)
        taken = self.line(queue, floor)[:want]
        for job in taken:
            job.state = "processing"
            job.attempts += 1
            job.deliveries.append(Delivery("", self.boot + queue.lease))
            if job.group is not None:
                job.own = queue.served[job.group] = self.stamp()
        return taken

    # ---- settling

    def _lost(self, job: Job, receipt: str, verb: str) -> set[str | None]:
        """Why a receipt is not live; None among them: the same verb again, which succeeds."""
        age = next(
            (n for n, one in enumerate(reversed(job.deliveries)) if one.receipt == receipt), None
        )
        if age is None:
            return {"unknown"}
        delivery = job.deliveries[-1 - age]
        if age > 1 or not delivery.answerable:
            return {"expired", "settled", "unknown", None}
        if delivery.ended is None or delivery.ended == "lapsed":
            return {"expired"}
        if delivery.ended == verb:
            return {None}
        return {"settled"}

    def settle(
        self,
        queue: Queue,
        job: Job,
        receipt: str,
        verb: str,
        delay: float = 0,
        result: object = None,
    ) -> set[str | None]:
        """Do a verb; return the answers that are right (None: it holds)."""
        if job not in queue.jobs.values():
            return {"unknown"}
        delivery = job.deliveries[-1]
        live = job.state == "processing" and delivery.receipt == receipt
        if not live or self.lapsed(job):
            return self._lost(job, receipt, verb)
        delivery.ended = verb
        if verb == "ack":
            job.result = result
            self._finish(queue, job, "acked", None)
        elif verb == "fail":
            self._finish(queue, job, "failed", "failed")
        elif verb == "nack":
            self._give_back(queue, job, delay)
        else:
            self._release(queue, job)
        return {None}

    def _release(self, queue: Queue, job: Job) -> None:
        job.attempts -= 1
        if job.cancelled:
            self._finish(queue, job, "failed", "cancelled")
            return
        job.state = "ready"
        if job.group is not None:
            job.since = job.own  # its claim: it has had its turn
            self._choose_lead(queue, job.group)

    def extend(self, queue: Queue, job: Job, receipt: str, seconds: float) -> set[str | None]:
        if job not in queue.jobs.values():
            return {"unknown"}
        delivery = job.deliveries[-1]
        if job.state != "processing" or delivery.receipt != receipt or self.lapsed(job):
            return self._lost(job, receipt, "extend_lease") - {None}
        delivery.deadline = max(delivery.deadline, self.boot + round(seconds * SECOND))
        return {None}

    # ---- repairing

    def reclaim(self, queue: Queue) -> int:
        return self._reclaim(queue)

    def retry(self, queue: Queue, job: Job) -> bool:
        if job.state != "failed":
            return False
        job.attempts, job.reason, job.cancelled = 0, None, False
        job.own, job.due = self.stamp(), None
        if job.deliveries:
            job.deliveries[-1].answerable = False
        self._arrive(queue, job)
        if job.state == "ready":
            job.since = job.own
        return True

    def cancel(self, queue: Queue, job: Job) -> bool:
        if job.state in FINISHED:
            return False
        if job.state == "processing":
            job.cancelled = True
        else:
            self._finish(queue, job, "failed", "cancelled")
        return True

    def discard(self, queue: Queue, job: Job) -> None:
        self._finish(queue, job, "failed", "discarded")

    def purge(self, queue: Queue, older_than: float, include_failed: bool) -> int:
        states = FINISHED if include_failed else ("acked",)
        before = self.wall - round(older_than * SECOND)
        gone = [
            job for job in queue.jobs.values() if job.state in states and job.finished <= before
        ]
        for job in gone:
            del queue.jobs[job.id]
        return len(gone)

    # ---- looking

    def stats(self, queue: Queue) -> dict[str, object]:
        jobs = list(queue.jobs.values())
        count = {state: sum(job.state == state for job in jobs) for state in (*LIVE, *FINISHED)}
        due = [job for job in jobs if self.due(job)]
        waits = [job.since for job in jobs if job.state == "ready"]
        waits += [job.own for job in due]
        return {
            "ready": count["ready"] + count["delayed"] + count["blocked"],
            "delayed": count["delayed"] - len(due),
            "blocked": count["blocked"],
            "processing": count["processing"],
            "expired": sum(self.lapsed(job) for job in jobs),
            "acked": count["acked"],
            "failed": count["failed"],
            "paused": queue.paused,
            "oldest_ready_at": min(waits, default=None),
        }

    def failed(self, queue: Queue) -> list[Job]:
        """Dead letters, newest first."""
        dead = [job for job in queue.jobs.values() if job.state == "failed"]
        return sorted(dead, key=lambda job: (job.finished, job.number), reverse=True)
