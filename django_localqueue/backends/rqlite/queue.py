"""The queue on an rqlite cluster."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from django_localqueue.backends.arguments import (
    Act,
    Message,
    Settlement,
    microseconds,
)
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.leases import lost_lease, outcome
from django_localqueue.backends.rqlite import (
    counts,
    fast,
    listing,
    records,
    repairs,
    safety,
    statements,
    stores,
)
from django_localqueue.backends.rqlite.adopt import Adopted, adopt
from django_localqueue.backends.rqlite.claims import Claim
from django_localqueue.backends.rqlite.coordination import RqliteCoordination
from django_localqueue.exceptions import (
    InvalidInput,
    JobNotFound,
    LocalQueueError,
    NotStored,
    QueueClosed,
)
from django_localqueue.serializers import Serializer
from django_localqueue.transports.cluster import Timeouts
from django_localqueue.transports.errors import GuardFailed
from django_localqueue.transports.nodes import NodeFacts
from django_localqueue.transports.tls import Tls
from django_localqueue.types import (
    Activity,
    Applied,
    Exchange,
    FailureGroup,
    Job,
    JobFilter,
    JobId,
    JobRecord,
    Page,
    Stats,
)

logger = logging.getLogger("django_localqueue.rqlite")

#: Seconds between the first two looks at an empty queue; they grow to ``poll_interval``.
FIRST_PAUSE = 0.02


class RqliteQueue(RqliteCoordination, BaseQueue):
    """A queue replicated by an rqlite cluster; several names may share one cluster.

    Every verb is one HTTP request to the leader, applied whole or not at all. It is sent again,
    to whichever node leads then, until its outcome is known or ``timeouts["total"]`` has passed,
    and is safe to send again: beside what ``BaseQueue`` says, every verb that writes raises
    ``OutcomeUnknown`` where it can't be known whether it happened. Times are the leader's.
    Threads may share a queue, and a forked child may go on using it. Nothing is sent before the
    first verb, which makes the tables where they are missing.

    Args:
        location: the URL of a node, ``http://`` or ``https://``, or a list with one for each.
        name: as ``BaseQueue``; so are ``lease_seconds``, ``max_retries``,
            ``max_payload_bytes``, ``retention_seconds``, ``serializer``, ``max_running`` and
            ``rate``.
        auth: user and password, a pair or ``"user:password"``; they may also stand in the URLs.
        tls: paths of PEM files: ``ca``, ``cert``, ``key``, as ``transports.Tls``.
        timeouts: seconds to ``connect``, to ``read`` an answer, and in ``total`` for all
            attempts of a verb, as ``transports.Timeouts``; a number is the total.
        clock: a test's clock instead of the leader's.

    Raises:
        InvalidInput: an argument was refused.

    The first verb raises also ``InvalidInput`` where the cluster is in use in this process with
    other auth, tls, timeouts or clock; ``MissingExtra`` where ``requests`` is not installed;
    ``ForeignDatabase`` and ``NewerSchema`` where the tables can't be used.
    """

    supports_vacuum = False

    def __init__(
        self,
        location: str | Sequence[str],
        name: str = "default",
        *,
        lease_seconds: float = 60,
        max_retries: int = 3,
        max_payload_bytes: int = 1 << 20,
        retention_seconds: float | None = 86_400,
        serializer: Serializer | None = None,
        max_running: int | None = None,
        rate: str | float | None = None,
        auth: tuple[str, str] | str | None = None,
        tls: Tls | Mapping[str, str] | None = None,
        timeouts: Timeouts | Mapping[str, float] | float | None = None,
        clock: stores.Clock | None = None,
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
        if isinstance(auth, str):
            user, _, password = auth.partition(":")
            auth = user, password
        if isinstance(timeouts, (int, float)) and not isinstance(timeouts, bool):
            timeouts = {"total": timeouts}
        self.store_key, options = stores.address(location, auth)
        self._options = replace(
            options,
            tls=_made(Tls, tls, "tls"),
            timeouts=_made(Timeouts, timeouts, "timeouts"),
            clock=clock,
        )
        self._closed = False
        self._shared: stores.SharedStore | None = None

    # ---- the store

    def _store(self) -> stores.SharedStore:
        """Return the cluster as this process uses it; no connection is made yet."""
        if self._closed:
            raise QueueClosed(
                f"The queue {self.name!r} in {self.store_key} was closed; open it again."
            )
        with stores.lock:
            if self._shared is None:
                self._shared = stores.join(self, self.store_key, self._options)
            return self._shared

    def close(self) -> None:
        with stores.lock:
            self._closed = True
            shared, self._shared = self._shared, None
            if shared is not None:
                stores.leave(self, shared)
                shared.bell.ring()

    def interrupt(self) -> None:
        if not self._closed:
            shared = self._store()
            shared.interrupted = True
            shared.bell.ring()

    def now(self) -> int:
        return self._store().times()[0]

    def unreachable(self) -> dict[str, LocalQueueError]:
        """Ask each node by itself; return the URLs of those that don't answer, and why."""
        return stores.unreachable(self._options)

    def nodes(self) -> list[NodeFacts]:
        """Return what is known of each node: who leads, versions, failures, last error."""
        return self._store().client.nodes()

    # ---- putting

    def _put(self, messages: list[Message], once: bool = False) -> list[JobId]:
        shared = self._store()
        now, _ = shared.times()
        op = statements.operation(now)
        plain = all(
            message.job_id is None and message.group_id is None and message.unique_key is None
            for message in messages
        )
        sent: dict[object, Message] = {}  # one job_id twice: the first counts
        for index, message in enumerate(messages):
            sent.setdefault(index if message.job_id is None else message.job_id, message)
        rows = [records.put_row(message, once) for message in sent.values()]
        short = fast.put(op, now, self.name, rows) if rows else None
        if short is not None:
            # Refused where the job_id is there already, or where a copy of it was applied.
            with contextlib.suppress(GuardFailed):
                stored = fast.stored(shared.execute(short, fast.GUARD), rows)
                if stored is not None:
                    shared.bell.ring()
                    return records.put_ids(messages, stored[0], now, stored[1])
        with contextlib.nullcontext() if short is None else stores.after_a_write():
            results = shared.request(statements.put(op, now, self.name, rows, plain))
        shared.bell.ring()
        stands = [] if plain else results[2].rows
        return records.put_ids(messages, int(results[1].rows[0][0]), now, stands)

    def once_ids(self, older_than: float, limit: int = 1_000) -> list[str]:
        shared = self._store()
        before = shared.times()[0] - microseconds(older_than, "older_than")
        (found,) = shared.read(statements.once_ids(self.name, before, limit))
        return [row[0] for row in found.rows]

    def forget_once(self, ids: Sequence[str]) -> None:
        self._store().execute(statements.forget_once(self.name, ids))

    def adopt(self) -> Adopted:
        """Move the messages that wait in the tables of ``RqliteTransport`` into this queue.

        Each is moved once, however often this is called or interrupted; its event becomes the
        payload as it is, its group and the group's priority are kept, and a parked one is
        delayed. A group with a message in flight is left as it is: call again once that ended.
        """
        return adopt(self._store(), self.name)

    # ---- getting and settling

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
        claim = Claim(
            self._store(),
            sources,
            want,
            lease_seconds=lease_seconds,
            round_robin=round_robin,
            min_priority=min_priority,
            worker=worker,
        )
        deadline = None if timeout is None else time.monotonic() + timeout
        if not block:
            deadline = time.monotonic()
        verdicts, jobs = claim.first([records.settle_row(item) for item in settlements])
        if want and not jobs:
            try:
                jobs = self._wait(claim, deadline, told=bool(settlements))
            except LocalQueueError as error:
                if not settlements:
                    raise
                # What was settled must be told; the caller meets the trouble with its next call.
                logger.warning(
                    "Jobs were settled, and then no new ones could be claimed: %s", error
                )
        return outcome(settlements, verdicts, jobs)

    def _wait(self, claim: Claim, deadline: float | None, told: bool) -> list[Job]:
        """Look, wait and claim until there are jobs, the time is up or the wait is ended.

        ``told``: what was settled must be told to the caller, whatever ends the wait.
        """
        shared = claim.shared
        pause = FIRST_PAUSE
        while True:
            bell = shared.bell
            seen = bell.rings()  # before looking, so that no put is missed
            quiet = claim.look()
            if quiet == 0:
                # What is ready may be used up: the second claim then buries it and goes on.
                jobs = claim.settle_and_claim([])[1] or claim.settle_and_claim([])[1]
                if jobs:
                    return jobs
            rest = min(pause * random.uniform(0.5, 1), quiet or pause)
            pause = min(2 * pause, self.poll_interval)
            if deadline is not None:
                rest = min(rest, deadline - time.monotonic())
                if rest <= 0:
                    return []
            if shared.interrupted:
                shared.interrupted = False
                return []
            bell.wait(seen, rest)
            if bell.rings() != seen:
                pause = FIRST_PAUSE
            if shared.interrupted:
                shared.interrupted = False
                return []
            if self._closed or not threading.main_thread().is_alive():
                if told:
                    return []
                self._store()  # raises QueueClosed
                raise QueueClosed("The interpreter ends; no job comes any more.")

    def extend_lease(self, job: Job, seconds: float) -> bool:
        self._check_claimed_here(job)
        shared = self._store()
        now, boot = shared.times()
        until = boot + microseconds(seconds, "seconds", positive=True)
        results = shared.request(
            statements.extend(job.queue.name, job.key, job.receipt, boot, until)
        )
        end, cancel, loss = results[1].rows[0]
        if loss is not None:
            raise lost_lease(job, loss)
        job.lease_expires_at = now + end - boot
        return not cancel

    def _progress(self, job: Job, value: bytes) -> bool:
        shared = self._store()
        _, boot = shared.times()
        text = cast("str", records.stored(value))
        results = shared.request(
            statements.progress(job.queue.name, job.key, job.receipt, boot, text)
        )
        _, cancel, loss = results[1].rows[0]
        if loss is not None:
            raise lost_lease(job, loss)
        return not cancel

    # ---- looking

    def stats(self) -> Stats:
        shared = self._store()
        (found,) = shared.read(listing.stats(self.name, *shared.times()))
        if not found.rows:
            return Stats()
        row = listing.Counts(*found.rows[0])
        waits = [since for since in (row.oldest, row.oldest_due) if since is not None]
        return Stats(
            row.ready + row.delayed + row.blocked,
            row.delayed - row.due,
            row.blocked,
            row.processing,
            row.expired,
            row.acked,
            row.failed,
            bool(row.paused),
            min(waits, default=None),
        )

    def lookup(self, id: str) -> JobRecord | None:
        shared = self._store()
        public = listing.public_id(str(id))
        if public is None:
            return None
        times = shared.times()
        found, attempts = shared.read(listing.lookup(self.name, public))
        if not found.rows:
            return None
        record = records.job_record(self.name, records.RecordRow(*found.rows[0]), times)
        return records.with_history(record, [records.attempt(row) for row in attempts.rows])

    def _list(self, filter: JobFilter, limit: int, after: tuple[int, int] | None) -> Page:
        shared = self._store()
        times = shared.times()
        if filter.ids is not None:
            rows, next = listing.read_by_ids(shared, self.name, filter, times[0]), None
        else:
            rows, next = listing.read_page(shared, self.name, filter, after, limit)
        return Page([records.job_record(self.name, row, times) for row in rows], next)

    def _count(self, filter: JobFilter, cap: int) -> int:
        shared = self._store()
        if filter.ids is not None:
            found = listing.read_by_ids(shared, self.name, filter, shared.times()[0])
            return min(cap, len(found))
        return listing.read_count(shared, self.name, filter, cap)

    def _failures(self, limit: int, after: tuple[int, int] | None) -> list[FailureGroup]:
        return counts.failures(self._store(), self.name, limit, after)

    def _activity(self, since: int, until: int, step: int) -> list[Activity]:
        return counts.activity(self._store(), self.name, since, until, step)

    def _list_failed(self, limit: int, offset: int) -> list[JobRecord]:
        shared = self._store()
        times = shared.times()
        (found,) = shared.read(listing.list_failed(self.name, limit, offset))
        return [records.job_record(self.name, records.RecordRow(*row), times) for row in found.rows]

    # ---- repairing

    def _retry_failed(self, id: str) -> bool:
        return self._known(repairs.act_on_one(self._store(), self.name, id, "retry"), id)

    def _cancel(self, id: str) -> bool:
        return self._known(repairs.act_on_one(self._store(), self.name, id, "cancel"), id)

    def _edit(self, id: str, payload: bytes) -> bool:
        text = cast("str", records.stored(payload))
        return self._known(repairs.edit(self._store(), self.name, id, text), id)

    def _known(self, done: bool | None, id: str) -> bool:
        if done is None:
            raise JobNotFound(f"The queue {self.name!r} has no job {id!r}.")
        return done

    def _apply(self, act: Act, filter: JobFilter, as_of: int, limit: int) -> Applied:
        return repairs.apply(self._store(), self.name, act, filter, as_of, limit)

    def _purge(self, older_than: float, include_failed: bool) -> int:
        kinds = ("acked", "failed")[: 1 + include_failed]
        return repairs.purge(self._store(), self.name, older_than, kinds, None)

    def _prune(self, limit: int) -> int:
        return repairs.prune(self._store(), self.name, self.retention_seconds, limit)

    def has_leftovers(self) -> bool:
        return repairs.has_leftovers(self._store(), self.name, self.retention_seconds)

    def reclaim_expired_leases(self) -> int:
        return repairs.reclaim(self._store(), self.name, self.max_retries)

    def pause(self) -> None:
        repairs.set_paused(self._store(), self.name, True)

    def resume(self) -> None:
        shared = self._store()
        repairs.set_paused(shared, self.name, False)
        shared.promoted.pop(self.name, None)
        shared.bell.ring()

    def check(self) -> list[str]:
        """Look for damage as ``BaseQueue.check``; the leader reads its own copy."""
        found = self._store().read(safety.questions())
        return safety.faults([[row[0] for row in result.rows] for result in found])

    def _backup(self, target: str) -> None:
        safety.backup(self._store().client, target)

    def vacuum(self) -> None:
        """Raise ``NotStored``: each node gives space back by itself, if started so."""
        raise NotStored(
            "The nodes of an rqlite cluster give space back by themselves: start each with"
            " -auto-vacuum-int. Nothing was done."
        )


def _made(kind: Any, given: Any, name: str) -> Any:
    """Return the options as what the transport takes; raises ``InvalidInput``."""
    if given is None or isinstance(given, kind):
        return kind() if given is None else given
    known = sorted(kind.__dataclass_fields__)
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InvalidInput(f"{name} must be a dict with no keys but {', '.join(known)}.")
    return kind(**given)
