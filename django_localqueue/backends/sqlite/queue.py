"""The queue in one SQLite file, on the native engine."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django_localqueue import _native
from django_localqueue.backends.arguments import (
    HEADERS,
    Message,
    Settlement,
    microseconds,
    seconds,
)
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.leases import lost_lease, outcome
from django_localqueue.backends.sqlite import stores
from django_localqueue.backends.sqlite.coordination import SQLiteCoordination
from django_localqueue.backends.sqlite.inspection import SQLiteInspection
from django_localqueue.backends.sqlite.records import (
    NativeSettlement,
    native_settlement,
    put_ids,
    undecodable,
)
from django_localqueue.exceptions import (
    Empty,
    InvalidInput,
    LocalQueueError,
    QueueClosed,
)
from django_localqueue.serializers import Serializer
from django_localqueue.types import (
    MICROSECONDS,
    Exchange,
    Job,
    JobId,
    Settle,
)

#: Seconds that one wait in the engine lasts at most. Whether the queue was closed, where others
#: keep its store open, and whether the interpreter ends is seen between two.
WAIT = 1.0


class SQLiteQueue(SQLiteCoordination, SQLiteInspection, BaseQueue):
    """A queue in a SQLite file on a local disk; several names may share one file.

    Threads may share it, other processes may open the same folder, and a forked
    child may go on using it: it opens the file anew.

    Args:
        path: the folder of the store, made where missing (its parent must be there);
            the file in it is ``localqueue.db``. ``":memory:"`` is a store of this
            queue's own that lives as long as it is open; queues of this process with
            the same ``":memory:<any text>"`` share one.
        name: as ``BaseQueue``; so are ``lease_seconds``, ``max_retries``,
            ``max_payload_bytes``, ``retention_seconds``, ``serializer``, ``max_running`` and
            ``rate``.
        durability: when ``put`` and the others return. ``"full"``: once the disk has
            it, so it survives a power cut; ``"normal"``: once it is committed, so it
            survives the process.
        busy_timeout: seconds to wait for the store's write lock, then ``StoreBusy``.
        clock: a test's clock instead of the machine's.
        lazy: open the store when it is first used instead of now.

    Raises:
        InvalidInput: an argument was refused, or the store is open in this process
            with another durability, busy_timeout or clock.
        StoreUnavailable: the folder or file can't be used; its subclasses say more.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "default",
        *,
        lease_seconds: float = 60,
        max_retries: int = 3,
        durability: str = "full",
        busy_timeout: float = 30,
        max_payload_bytes: int = 1 << 20,
        retention_seconds: float | None = 86_400,
        serializer: Serializer | None = None,
        max_running: int | None = None,
        rate: str | float | None = None,
        clock: _native.ManualClock | None = None,
        lazy: bool = False,
    ) -> None:
        super().__init__(
            name,
            lease_seconds=lease_seconds,
            max_retries=max_retries,
            max_payload_bytes=max_payload_bytes,
            retention_seconds=retention_seconds,
            serializer=serializer,
            max_running=max_running,
            rate=rate,
        )
        if durability not in ("full", "normal"):
            raise InvalidInput(f"durability must be 'full' or 'normal', and it is {durability!r}.")
        self.durability = durability
        self._options = stores.StoreOptions(
            durability, float(seconds(busy_timeout, "busy_timeout")), clock
        )
        self._address = stores.address(path)
        self.store_key = self._address.key
        self._source = (self.name, round(self.lease_seconds * MICROSECONDS), self.max_retries)
        self._sources = (self._source,)
        self._closed = False
        self._shared: stores.SharedStore | None = None
        self._store: _native.Store | None = None  # that of _shared, one step nearer
        if not lazy:
            self._join()

    # ---- the store

    def __reduce__(self) -> tuple[object, ...]:
        return stores.sent(self, self._options)

    def _join(self) -> stores.SharedStore:
        """Return the store, opened anew in a forked child."""
        if self._closed:
            raise QueueClosed(
                f"The queue {self.name!r} in {self.store_key} was closed; open it again."
            )
        with stores.lock:
            if self._shared is None:
                shared = stores.join(self, self._address, self._options)
                self._store = shared.store
                self._shared = shared
            return self._shared

    def _open(self) -> _native.Store:
        return self._store or self._join().store

    def _forget_store(self) -> None:
        self._shared = None
        self._store = None

    def close(self) -> None:
        with stores.lock:
            self._closed = True
            shared = self._shared
            self._forget_store()
            if shared is not None:
                stores.leave(self, shared)

    def interrupt(self) -> None:
        shared = self._shared
        if shared is not None:
            shared.interrupted = True
            shared.store.interrupt()

    def now(self) -> int:
        return self._open().now()

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
        if (
            job_id is None
            and group_id is None
            and max_retries is None
            and task is None
            and not headers
            and not delay
            and type(priority) is int
            and priority == 0
            and expires is None
            and unique_key is None
            and not unique_seconds
            and retention is None
        ):
            payload = self.serializer.dumps(data)
            if len(payload) <= self.max_payload_bytes:
                return JobId(str(self._open().put_one(self.name, payload)))
        return super().put(
            data,
            job_id,
            delay=delay,
            priority=priority,
            group_id=group_id,
            max_retries=max_retries,
            task=task,
            headers=headers,
            expires=expires,
            unique_key=unique_key,
            unique_seconds=unique_seconds,
            retention=retention,
        )

    def _put(self, messages: list[Message], once: bool = False) -> list[JobId]:
        # A message has the fields of the engine's, in its order.
        stored = self._open().put(self.name, messages, once)
        return put_ids(messages, stored)

    def once_ids(self, older_than: float, limit: int = 1_000) -> list[str]:
        store = self._open()
        before = store.now() - microseconds(older_than, "older_than")
        return store.once_ids(self.name, before, limit)

    def forget_once(self, ids: Sequence[str]) -> None:
        self._open().forget_once(self.name, list(ids))

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
        if min_priority is not None or lease_seconds is not None or worker:
            return super().get(
                block,
                timeout,
                min_priority=min_priority,
                lease_seconds=lease_seconds,
                worker=worker,
            )
        if timeout is not None:
            seconds(timeout, "timeout")
        _, jobs = self._claim(
            (), 1, (self,), self._sources, False, -100, "", timeout if block else 0.0
        )
        if not jobs:
            raise Empty(f"No job is ready in the queue {self.name!r}.")
        return jobs[0]

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
    ) -> Exchange:
        queues = cast("tuple[SQLiteQueue, ...]", sources)
        if lease_seconds is None:
            claims = tuple(queue._source for queue in queues)
        else:
            lease = microseconds(lease_seconds, "lease_seconds")
            claims = tuple((queue.name, lease, queue.max_retries) for queue in queues)
        losses, jobs = self._claim(
            [native_settlement(item) for item in settlements],
            want,
            queues,
            claims,
            round_robin,
            min_priority,
            worker,
            timeout if block else 0.0,
        )
        return outcome(settlements, losses, jobs)

    def _claim(
        self,
        settlements: Sequence[NativeSettlement],
        want: int,
        queues: tuple[SQLiteQueue, ...],
        sources: Sequence[tuple[str, int, int]],
        round_robin: bool,
        min_priority: int,
        worker: str,
        timeout: float | None,
    ) -> tuple[Sequence[str | None], list[Job]]:
        """Settle and claim. A payload that can't be decoded makes its job a dead letter."""
        shared = self._shared or self._join()
        deadline = None if timeout is None else time.monotonic() + timeout
        wait = min(WAIT, self.poll_interval)
        limits = None
        if any(queue._limits is not None for queue in queues):
            limits = [queue._limits for queue in queues]
        losses: Sequence[str | None] | None = None
        settled = settlements
        while True:
            results, deliveries = shared.store.exchange(
                settled,
                want,
                sources,
                round_robin=round_robin,
                min_priority=min_priority,
                worker=worker,
                timeout=wait if timeout is None or timeout > wait else timeout,
                limits=limits,
            )
            if losses is None:
                losses = results
            jobs: list[Job] = []
            bad: list[NativeSettlement] = []
            for delivery in deliveries:
                queue = queues[delivery[0]]
                try:
                    jobs.append(queue._job(delivery))
                except Exception as error:
                    bad.append(undecodable(queue.name, delivery, error))
            if bad and jobs:
                # Where this fails their leases run out, and they are met again.
                with contextlib.suppress(LocalQueueError):
                    self._claim(bad, 0, (), (), False, -100, "", 0.0)
            if jobs or not want or not (bad or self._goes_on(shared, deadline, settlements)):
                return losses, jobs
            settled = bad
            if deadline is not None:
                timeout = max(0.0, deadline - time.monotonic())

    def _goes_on(
        self,
        shared: stores.SharedStore,
        deadline: float | None,
        settlements: Sequence[NativeSettlement],
    ) -> bool:
        """Whether a wait that ended without jobs must begin again."""
        if deadline is not None and time.monotonic() >= deadline:
            return False
        if shared.interrupted:
            shared.interrupted = False
            return False
        if settlements:
            return not (self._closed or _is_ending())  # what was settled must be told
        if self._closed:
            self._join()  # raises QueueClosed
        if _is_ending():
            raise QueueClosed("The interpreter ends; no job comes any more.")
        return True

    def _job(self, delivery: _native._Delivery) -> Job:
        (
            _,
            key,
            job_id,
            payload,
            attempts,
            receipt,
            lease_expires_at,
            created_at,
            priority,
            group_id,
            task,
            headers,
            max_retries,
            expires_at,
            unique_key,
            retention,
        ) = delivery
        return Job(
            self,
            id=str(key) if job_id is None else job_id,
            key=key,
            data=self.serializer.loads(payload),
            attempts=attempts,
            receipt=receipt,
            lease_expires_at=lease_expires_at,
            created_at=created_at,
            priority=priority,
            group_id=group_id,
            task=task,
            headers=None if headers is None else HEADERS.loads(headers),
            max_retries=max_retries,
            expires_at=expires_at,
            unique_key=unique_key,
            retention=retention,
        )

    # ---- settling

    def ack(self, job: Job, result: Any = None) -> None:
        if result is not None or type(job) is not Job or job.queue.store_key != self.store_key:
            self._settle_one(Settle(job, "ack", result=result))
            return
        losses, _ = self._open().exchange(
            (
                (
                    job.queue.name,
                    job.key,
                    job.receipt,
                    "ack",
                    0,
                    self.max_retries,
                    None,
                    None,
                    "failed",
                ),
            ),
            0,
            (),
            round_robin=False,
            min_priority=-100,
            worker="",
            timeout=0.0,
        )
        if losses[0] is not None:
            raise lost_lease(job, losses[0])

    def extend_lease(self, job: Job, seconds: float) -> bool:
        self._check_claimed_here(job)
        lost, cancelled, ends_at = self._open().extend_lease(
            job.queue.name, job.key, job.receipt, microseconds(seconds, "seconds", positive=True)
        )
        if lost is not None:
            raise lost_lease(job, lost)
        job.lease_expires_at = ends_at
        return not cancelled

    def _progress(self, job: Job, value: bytes) -> bool:
        lost, cancelled = self._open().progress(job.queue.name, job.key, job.receipt, value)
        if lost is not None:
            raise lost_lease(job, lost)
        return not cancelled


def _is_ending() -> bool:
    """Whether the main thread has ended: the process then waits for this one only."""
    return not threading.main_thread().is_alive()


SimpleQueue = SQLiteQueue
