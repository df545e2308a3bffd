"""The contract that every queue keeps.

This class checks arguments, serializes payloads and builds jobs; a backend
stores. The rules of each verb are in docs/guarantees.md, their tests in
``tests/contract/``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from django_localqueue.backends.arguments import (
    HEADERS,
    Message,
    Settlement,
    limits,
    microseconds,
    optional_microseconds,
    seconds,
    text,
    whole,
)
from django_localqueue.backends.settling import SettlingQueue
from django_localqueue.exceptions import (
    Empty,
    InvalidInput,
    LeaseExpired,
    LocalQueueError,
    PayloadTooLarge,
)
from django_localqueue.serializers import JSONSerializer, Serializer
from django_localqueue.types import (
    Exchange,
    Job,
    JobId,
    NewJob,
    Settle,
)

MAX_BATCH = 100_000


class BaseQueue(SettlingQueue):
    """A named line of jobs in a store.

    Args:
        name: the queue's name in its store, 1 to 255 characters.
        lease_seconds: how long a delivered job belongs to its worker before it is
            given to another; ``get`` and ``exchange`` may ask for another time.
        max_retries: a job is delivered at most ``max_retries + 1`` times; ``put``
            may say otherwise for its job.
        max_payload_bytes: the largest payload that ``put`` takes, serialized.
        retention_seconds: how long acked jobs are kept for ``prune``; None: for ever.
        serializer: how payloads become bytes.
        max_running: how many of its jobs are in the hands of workers at a time, in all
            processes together; None: any number.
        rate: how often one is delivered, in all processes together: jobs a second, or
            text such as ``"100/m"`` (s, m, h, d). Deliveries are spread evenly; what falls
            within 50 ms may come at once.

    Raises:
        InvalidInput: an argument is of the wrong type or out of range.
    """

    supports_vacuum: ClassVar[bool] = True
    #: Seconds that a put may stay unnoticed by a waiting ``get`` where nothing tells of it.
    poll_interval: float = 1.0

    def __init__(
        self,
        name: str = "default",
        *,
        lease_seconds: float = 60,
        max_retries: int = 3,
        max_payload_bytes: int = 1 << 20,
        retention_seconds: float | None = 86_400,
        serializer: Serializer | None = None,
        max_running: int | None = None,
        rate: str | float | None = None,
    ) -> None:
        self.name = text(name, "name")
        self.lease_seconds = seconds(lease_seconds, "lease_seconds", positive=True)
        self.max_retries = whole(max_retries, "max_retries", 0, 1_000_000)
        self.max_payload_bytes = whole(max_payload_bytes, "max_payload_bytes", 1, 1 << 30)
        if retention_seconds is not None:
            seconds(retention_seconds, "retention_seconds")
        self.retention_seconds = retention_seconds
        self.max_running = max_running
        self.rate = rate
        self._limits = limits(max_running, rate)
        for method in ("dumps", "loads"):
            if serializer is not None and not callable(getattr(serializer, method, None)):
                raise InvalidInput(f"serializer must have {method}(), and it is {serializer!r}.")
        self.serializer: Serializer = JSONSerializer() if serializer is None else serializer

    # ---- putting

    def put(
        self,
        data: Any,
        job_id: str | None = None,
        *,
        delay: float = 0,
        priority: int = 0,
        group_id: str | None = None,
        max_retries: int | None = None,
        task: str | None = None,
        headers: Mapping[str, Any] | None = None,
        expires: float | None = None,
        unique_key: str | None = None,
        unique_seconds: float = 0,
        retention: float | None = None,
    ) -> JobId:
        """Store one job and return its id once it is committed.

        Args:
            data: the payload; with the default serializer anything that JSON carries.
            job_id: an id of the caller's, unique in this queue while the job is
                stored, in whatever state. A second put with it stores nothing.
            delay: seconds until the job may be delivered.
            priority: -100 to 100; higher is delivered first.
            group_id: jobs of one group are delivered one at a time, in put order.
            max_retries: this job's own, instead of the queue's.
            task: dotted path of the task that the job is a call of.
            headers: small facts about the job that travel beside its payload.
            expires: seconds until the job must have been delivered for the first time;
                if it was not, it becomes a dead letter (``expired``) instead.
            unique_key: while a job of this key is waiting or running in this queue,
                a put with it stores nothing.
            unique_seconds: how long after its put the job holds its ``unique_key`` at
                least, even if it has finished.
            retention: seconds that the job is kept once it is acked, instead of the
                queue's ``retention_seconds``.

        Returns:
            The id; its ``created`` is False where ``job_id`` was there already, or
            another job holds the ``unique_key``: then it is that one's id.

        Raises:
            InvalidInput: an argument or the payload was refused.
            NotStored: the store could not take it; nothing was stored.
            OutcomeUnknown: only on rqlite; put again with the same ``job_id``.
            StoredNotSynced: stored, but a power cut may lose it.
        """
        job = NewJob(
            data,
            job_id,
            delay,
            priority,
            group_id,
            max_retries,
            task,
            headers,
            expires,
            unique_key,
            unique_seconds,
            retention,
        )
        return self._put([self._message(job, "")])[0]

    def put_many(self, jobs: Iterable[Any], *, once: bool = False) -> list[JobId]:
        """Store all jobs or none, in one transaction; ids in the order given.

        Args:
            jobs: payloads, or ``NewJob`` where a job needs more than a payload; at
                most 100,000.
            once: a job whose ``job_id`` was put with ``once`` before is not stored again,
                even if it is purged by now, until ``forget_once``.

        Raises:
            As ``put``; the message names the index of a refused job where there are several.
        """
        jobs = jobs if isinstance(jobs, (list, tuple)) else list(jobs)
        messages: list[Message] = []
        plain = 0
        for index, job in enumerate(jobs):
            where = f"job {index}: " if len(jobs) > 1 else ""
            if isinstance(job, NewJob):
                messages.append(self._message(job, where))
                continue
            plain += 1
            try:
                payload = self._payload(job)
            except InvalidInput as error:
                raise type(error)(f"{where}{error}") from None
            messages.append(Message(payload, None, 0, 0, None, None, None, None))
        if len(messages) > MAX_BATCH:
            raise InvalidInput(
                f"put_many was given {len(messages)} jobs, and at most {MAX_BATCH} go into one"
                " transaction; put them in several calls."
            )
        if (len(messages) > 1 and len(messages) > plain) or once:
            _check_ids(messages, once)
        return self._put(messages, once) if messages else []

    @abstractmethod
    def once_ids(self, older_than: float, limit: int = 1_000) -> list[str]:
        """Return some of the ids that ``put_many(once=True)`` got that many seconds ago."""

    @abstractmethod
    def forget_once(self, ids: Sequence[str]) -> None:
        """Forget that these ids were put: a job of such an id may be put again."""

    # ---- getting

    def get(
        self,
        block: bool = True,
        timeout: float | None = None,
        *,
        min_priority: int | None = None,
        lease_seconds: float | None = None,
        worker: str = "",
    ) -> Job:
        """Take the next job, with a lease on it.

        Args:
            block: wait for a job where none is ready.
            timeout: seconds to wait at most; None waits for ever.
            min_priority: only jobs of at least this priority.
            lease_seconds: the lease of this delivery, instead of the queue's.
            worker: a name to record with the attempt.

        Raises:
            Empty: no job was ready (in time), or the queue is paused.
            NotStored: the store could not be read or written.
        """
        jobs = self.get_many(
            1,
            block=block,
            timeout=timeout,
            min_priority=min_priority,
            lease_seconds=lease_seconds,
            worker=worker,
        )
        if not jobs:
            raise Empty(f"No job is ready in the queue {self.name!r}.")
        return jobs[0]

    def get_nowait(self) -> Job:
        """``get`` without waiting."""
        return self.get(block=False)

    def get_many(
        self,
        n: int,
        *,
        block: bool = False,
        timeout: float | None = None,
        min_priority: int | None = None,
        lease_seconds: float | None = None,
        worker: str = "",
    ) -> list[Job]:
        """Take up to ``n`` jobs, each with a receipt of its own; ``[]`` where none is ready.

        With ``block`` it waits until there is at least one. Other arguments as ``get``.
        """
        return self.exchange(
            (),
            n,
            block=block,
            timeout=timeout,
            min_priority=min_priority,
            lease_seconds=lease_seconds,
            worker=worker,
        ).jobs

    def exchange(
        self,
        settled: Iterable[Settle],
        want: int,
        *,
        sources: Sequence[BaseQueue] | None = None,
        round_robin: bool = False,
        block: bool = False,
        timeout: float | None = None,
        min_priority: int | None = None,
        lease_seconds: float | None = None,
        worker: str = "",
    ) -> Exchange:
        """Settle jobs that are done and take up to ``want`` new ones in one transaction.

        Settling comes first, so the claim sees what it freed. A lost lease is a
        result, never an exception. Where it must wait for jobs, the settles are
        committed before it waits.

        Args:
            settled: jobs of any queue of this store, each with its verb.
            want: how many jobs to take at most; 0 only settles.
            sources: the queues to take from, all of this store; default this one.
                An earlier queue is emptied before a later one is looked at.
            round_robin: take turns between the sources instead.
            lease_seconds: for all jobs taken; default each source's own.
            Other arguments as ``get``.

        Raises:
            InvalidInput: an argument was refused; nothing was settled.
            NotStored: the store could not be written; nothing was settled.
            StoredNotSynced: done, but a power cut may undo it.
        """
        items: list[Settlement | LocalQueueError] = []
        for item in settled:
            try:
                items.append(self._settlement(item))
            except LeaseExpired as lost:
                items.append(lost)
        whole(want, "want", 0, MAX_BATCH)
        if min_priority is not None:
            whole(min_priority, "min_priority", -100, 100)
        if lease_seconds is not None:
            seconds(lease_seconds, "lease_seconds", positive=True)
        if timeout is not None:
            seconds(timeout, "timeout")
        queues = (self,) if sources is None else tuple(sources)
        for queue in queues:
            if queue.store_key != self.store_key:
                raise InvalidInput(
                    f"The queue {queue.name!r} is in another store than {self.name!r};"
                    " one exchange serves the queues of one store."
                )
        own = [item for item in items if isinstance(item, Settlement)]
        done = self._exchange(
            own,
            want,
            queues,
            round_robin=round_robin,
            block=block,
            timeout=timeout,
            min_priority=-100 if min_priority is None else min_priority,
            lease_seconds=lease_seconds,
            worker=text(worker, "worker", empty=True),
        )
        if len(own) == len(items):
            return done
        results = iter(done.results)
        return Exchange(
            [next(results) if isinstance(item, Settlement) else item for item in items], done.jobs
        )

    @abstractmethod
    def interrupt(self) -> None:
        """End a waiting ``get`` or ``exchange`` on this store in this process early."""

    def _settle_one(self, settle: Settle) -> None:
        error = self.exchange((settle,), 0).results[0]
        if error is not None:
            raise error

    @abstractmethod
    def close(self) -> None:
        """Close the queue; using it afterwards raises ``QueueClosed``. Waiting calls end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.store_key}>"

    # ---- what a backend does

    @abstractmethod
    def _put(self, messages: list[Message], once: bool = False) -> list[JobId]: ...

    @abstractmethod
    def _exchange(
        self,
        settlements: list[Settlement],
        want: int,
        sources: tuple[BaseQueue, ...],
        *,
        round_robin: bool,
        block: bool,
        timeout: float | None,
        min_priority: int,
        lease_seconds: float | None,
        worker: str,
    ) -> Exchange: ...

    # ---- checks

    def _payload(self, data: Any) -> bytes:
        payload = self.serializer.dumps(data)
        if len(payload) > self.max_payload_bytes:
            raise PayloadTooLarge(
                f"The payload has {len(payload)} bytes and the queue {self.name!r} takes at"
                f" most {self.max_payload_bytes}; store the data elsewhere and put a reference"
                " to it, or raise max_payload_bytes."
            )
        return payload

    def _message(self, job: NewJob, where: str) -> Message:
        try:
            payload = self._payload(job.data)
            headers = job.headers
            if job.unique_key is None and job.unique_seconds:
                raise InvalidInput("unique_seconds is for a unique_key; give one too.")
            delay = microseconds(job.delay, "delay") if job.delay else 0
            expires = optional_microseconds(job.expires, "expires", positive=True)
            if expires is not None and expires <= delay:
                raise InvalidInput(
                    f"expires is {job.expires} seconds and delay {job.delay}: the job would expire"
                    " before it may be delivered."
                )
            return Message(
                payload,
                None if job.job_id is None else text(job.job_id, "job_id"),
                delay,
                whole(job.priority, "priority", -100, 100),
                None if job.group_id is None else text(job.group_id, "group_id"),
                None
                if job.max_retries is None
                else whole(job.max_retries, "max_retries", 0, 1_000_000),
                None if job.task is None else text(job.task, "task", limit=1_000),
                HEADERS.dumps(dict(headers)) if headers else None,
                expires,
                None if job.unique_key is None else text(job.unique_key, "unique_key"),
                microseconds(job.unique_seconds, "unique_seconds") if job.unique_seconds else 0,
                optional_microseconds(job.retention, "retention"),
            )
        except InvalidInput as error:
            if where:
                raise type(error)(where + str(error)) from None
            raise


def _check_ids(messages: list[Message], once: bool) -> None:
    keys: dict[str, str | None] = {}
    for message in messages:
        id, key = message.job_id, message.unique_key
        if id is not None and keys.setdefault(id, key) != key:
            raise InvalidInput(
                f"The job_id {id!r} comes twice, with different unique keys; leave one out."
            )
        if once and id is None:
            raise InvalidInput("With once=True every job needs a job_id.")
