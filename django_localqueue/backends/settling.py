"""Settling: how a delivery ends, and what a worker says of its job until then."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from django_localqueue.backends.arguments import HEADERS, Settlement, microseconds, number, text
from django_localqueue.backends.coordination import CoordinatingQueue
from django_localqueue.exceptions import InvalidInput, LeaseExpired, PayloadTooLarge
from django_localqueue.types import ErrorRecord, Job, Reason, Settle


class SettlingQueue(CoordinatingQueue):
    """The part of the contract that is about jobs in hand; ``BaseQueue`` is the whole."""

    #: Queues whose ``store_key`` is equal share one store, so one claim can serve them.
    store_key: str

    def ack(self, job: Job, result: Any = None) -> None:
        """Record that the job is done; ``result`` is kept with it, serialized.

        Raises ``LeaseExpired`` where the job's receipt is not the live one, and
        ``NotStored`` where the store could not be written.
        """
        self._settle_one(Settle(job, "ack", result=result))

    def nack(
        self,
        job: Job,
        delay: float = 0,
        last_error: ErrorRecord | BaseException | str | None = None,
    ) -> None:
        """Give the job back after a transient error, to run again after ``delay`` seconds.

        Where its deliveries are used up it becomes a dead letter (``exhausted``).
        Raises as ``ack``.
        """
        self._settle_one(Settle(job, "nack", delay=delay, error=last_error))

    def fail(
        self,
        job: Job,
        last_error: ErrorRecord | BaseException | str | None = None,
        *,
        reason: Reason = "failed",
    ) -> None:
        """Make the job a dead letter now. Raises as ``ack``."""
        self._settle_one(Settle(job, "fail", error=last_error, reason=reason))

    def release(self, job: Job) -> None:
        """Give the job back untouched: the delivery is not counted. Raises as ``ack``."""
        self._settle_one(Settle(job, "release"))

    @abstractmethod
    def extend_lease(self, job: Job, seconds: float) -> bool:
        """Keep the job for at least ``seconds`` from now; a lease is never shortened.

        Returns:
            True, or False where somebody asked for the job to be cancelled: the
            lease is extended all the same, and the worker should stop soon.

        Raises:
            LeaseExpired: the receipt is not the live one; nothing was changed.
        """

    def progress(self, job: Job, done: float, total: float | None = None, note: str = "") -> bool:
        """Keep how far a running job is; ``lookup`` shows the last word as ``progress``.

        Args:
            job: as ``get`` returned it.
            done: how much is done, 0 or more.
            total: how much there is to do, if known.
            note: at most 1,000 characters for whoever looks.

        Returns:
            True, or False where somebody asked for the job to be cancelled.

        Raises:
            LeaseExpired: the receipt is not the live one; nothing was changed.
        """
        self._check_claimed_here(job)
        value = HEADERS.dumps(
            {
                "done": number(done, "done", 0),
                "total": None if total is None else number(total, "total", 0),
                "note": text(note, "note", limit=1_000, empty=True),
                "attempt": job.attempts,
                "at": self.now(),
            }
        )
        return self._progress(job, value)

    @abstractmethod
    def _progress(self, job: Job, value: bytes) -> bool: ...

    @abstractmethod
    def _settle_one(self, settle: Settle) -> None: ...

    # ---- checks

    def _check_claimed_here(self, job: Job) -> None:
        if not isinstance(job, Job):
            raise InvalidInput(
                f"A claimed job is needed, as get() returns it, and this is {job!r}: only its"
                " receipt gives the right to settle it."
            )
        if job.queue.store_key != self.store_key:
            raise LeaseExpired(f"The job {job.id} was not claimed from this store.", "unknown")

    def _settlement(self, settle: Settle) -> Settlement:
        job = settle.job
        self._check_claimed_here(job)
        result = None
        if settle.verb == "ack" and settle.result is not None:
            result = job.queue.serializer.dumps(settle.result)
            if len(result) > job.queue.max_payload_bytes:
                raise PayloadTooLarge(
                    f"The result has {len(result)} bytes, and at most"
                    f" {job.queue.max_payload_bytes} are kept; store it elsewhere and return a"
                    " reference to it."
                )
        return Settlement(
            job,
            settle.verb,
            microseconds(settle.delay, "delay") if settle.delay else 0,
            result,
            ErrorRecord.of(settle.error),
            settle.reason,
        )
