"""Settling and claiming for one call of ``exchange``."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from django_localqueue.backends.arguments import microseconds
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.rqlite import fast, limits, records, statements
from django_localqueue.backends.rqlite.statements import SettleRow
from django_localqueue.backends.rqlite.stores import SharedStore, after_a_write
from django_localqueue.exceptions import LocalQueueError, OutcomeUnknown
from django_localqueue.transports.answers import Result
from django_localqueue.transports.errors import GuardFailed
from django_localqueue.transports.statements import Statement
from django_localqueue.types import MICROSECONDS, Job

#: Microseconds that a busy queue may leave due jobs and lapsed leases to themselves.
PROMOTING = 500_000


class Claim:
    """What one call wants: up to ``want`` jobs of ``queues``, in their order or in turns."""

    def __init__(
        self,
        shared: SharedStore,
        queues: Sequence[BaseQueue],
        want: int,
        *,
        lease_seconds: float | None,
        round_robin: bool,
        min_priority: int,
        worker: str,
    ) -> None:
        self.shared = shared
        self.want = want
        self._queues = list({queue.name: queue for queue in reversed(queues)}.values())[::-1]
        self._sources: list[statements.Source] = [
            (
                queue.name,
                microseconds(lease_seconds or queue.lease_seconds, "lease_seconds"),
                queue.max_retries,
            )
            for queue in self._queues
        ]
        self._limited = any(queue._limits is not None for queue in self._queues)
        if self._limited:
            self._sources = [
                (*source, *(queue._limits or (None, 0, 1)))
                for source, queue in zip(self._sources, self._queues, strict=True)
            ]
        self._round_robin = round_robin
        self._min_priority = min_priority
        self._worker = worker
        self._promotes = False  # the next claim must, not only may

    def first(self, rows: Sequence[SettleRow]) -> tuple[list[str | None], list[Job]]:
        """Settle, and claim unless it is better to look first; return verdicts and jobs."""
        if rows or (self.want and self.shared.busy):
            return self.settle_and_claim(rows)
        return [], []

    def look(self) -> float:
        """Return in how many seconds there may be something to claim; infinity: unknown."""
        now, boot = self.shared.times()
        if self._limited:
            look = limits.outlook(self._sources, self._min_priority, boot)
        else:
            look = statements.outlook(self._sources, self._min_priority)
        (found,) = self.shared.read(look)
        soonest = math.inf
        for ready, due, lapse in found.rows:
            if ready:
                soonest = 0.0
            for at, time in ((due, now), (lapse, boot)):
                if at is not None:
                    soonest = min(soonest, max(0.0, (at - time) / MICROSECONDS))
                    self._promotes |= at <= time
        return soonest

    def settle_and_claim(self, rows: Sequence[SettleRow]) -> tuple[list[str | None], list[Job]]:
        """Do both in one request; a payload that can't be decoded makes its job a dead letter."""
        verdicts, jobs, bad = self._send(rows, self.want)
        # Where this fails their leases run out, and they are met again.
        with contextlib.suppress(LocalQueueError):
            while bad and not jobs:
                _, jobs, bad = self._send(bad, self.want)
            if bad:
                self._send(bad, 0)
        return verdicts, jobs

    def _send(
        self, rows: Sequence[SettleRow], want: int
    ) -> tuple[list[str | None], list[Job], list[SettleRow]]:
        shared = self.shared
        now, boot = shared.times()
        op = statements.operation(now)
        promote: list[Statement] = []
        if want and self._may_promote(now, boot):
            promote = statements.promote(now, boot, self._sources, want, self._min_priority)
        verdicts: list[str | None] = [None] * len(rows)
        short = self._short(op, now, boot, rows, want, promote)
        taken = None
        if short is not None:
            # Refused where a lease was lost, or where a copy of it was applied.
            with contextlib.suppress(GuardFailed):
                request, read = short
                taken = read(shared.execute(request, fast.GUARD))
        if taken is None:
            with contextlib.nullcontext() if short is None else after_a_write():
                settle = statements.settle(op, now, boot, rows) if rows else []
                claim = self._claim(op, now, boot, want, again=True)
                results = shared.execute([*settle, *promote, *claim])
            if rows:
                verdicts = self._verdicts(op, results[len(settle) - 1].rows, len(rows))
            # The note of the operation and what ``limits`` adds come behind the claim.
            found = results[-2 - int(self._limited)].rows if want else ()
            if want and not found:
                # An earlier copy may have taken jobs; where this fails their leases run out.
                with contextlib.suppress(LocalQueueError):
                    again = statements.claimed(op, boot, self._sources)
                    found = shared.read_after_a_write([again])[0].rows
            taken = statements.facts(found)
        if rows:
            shared.bell.ring()  # a job given back, or the next of a group
        if not want:
            return verdicts, [], []
        jobs, bad = self._delivered(taken, now)
        shared.busy = bool(taken)
        self._promotes = not taken
        if len(taken) < want:  # the next has time to look, and more may be due than were promoted
            for name, *_ in self._sources:
                shared.promoted.pop(name, None)
        return verdicts, jobs, bad

    def _short(
        self,
        op: str,
        now: int,
        boot: int,
        rows: Sequence[SettleRow],
        want: int,
        promote: Sequence[Statement],
    ) -> tuple[list[Statement], Callable[[Sequence[Result]], list[list[Any]]]] | None:
        """Return the request of the short way, and what reads the jobs from its results.

        None where the settlements are not for it.
        """
        if want and len(self._sources) == 1 and not self._limited:
            one = fast.exchange(
                *(op, now, boot, rows, self._sources[0], want),
                floor=self._min_priority,
                worker=self._worker,
            )
            if one is not None:
                return [*promote, one], partial(fast.taken, op)
        short = fast.ack(op, now, boot, rows, want > 0) if rows else [fast.claims(op, now)]
        if short is None:
            return None
        claim = self._claim(op, now, boot, want, again=False)
        place = len(short) + len(promote)

        def read(results: Sequence[Result]) -> list[list[Any]]:
            return statements.facts(results[place].rows) if claim else []

        return [*short, *promote, *claim], read

    def _claim(self, op: str, now: int, boot: int, want: int, *, again: bool) -> list[Statement]:
        if not want:
            return []
        claim = statements.claim(
            op,
            now,
            boot,
            self._sources,
            want,
            floor=self._min_priority,
            worker=self._worker,
            turn=self.shared.turn if self._round_robin else None,
            again=again,
            sql=limits.CLAIM if self._limited else statements.CLAIM,
        )
        return [*claim, limits.note(op, boot, self._sources)] if self._limited else claim

    def _verdicts(self, op: str, told: Sequence[Any], count: int) -> list[str | None]:
        """Return what became of each settlement; ``told`` is empty if an earlier copy did it."""
        if not told:
            told = self.shared.read_after_a_write([statements.answer(op)])[0].rows
        if not told:
            raise OutcomeUnknown("What became of the jobs that were settled can't be read.")
        if told[0][1:2] == (fast.ACKED,):  # noted by the short way, in which all of them held
            return [None] * count
        return [verdict for _, verdict in sorted(json.loads(told[0][0]), key=itemgetter(0))]

    def _may_promote(self, now: int, boot: int) -> bool:
        """Whether something may be due or lapsed: looked at twice a second, and where none came."""
        promoted = self.shared.promoted
        names = [name for name, *_ in self._sources]
        fresh = all(
            name in promoted
            and abs(now - promoted[name][0]) < PROMOTING
            and abs(boot - promoted[name][1]) < PROMOTING
            for name in names
        )
        if fresh and not self._promotes:
            return False
        promoted.update((name, (now, boot)) for name in names)
        return True

    def _delivered(
        self, rows: Sequence[Sequence[Any]], now: int
    ) -> tuple[list[Job], list[SettleRow]]:
        """Return the jobs in their order, and how to settle those that can't be decoded."""
        jobs: list[Job] = []
        bad: list[SettleRow] = []
        for source, row in self._in_order(rows):
            queue = self._queues[source]
            job = records.job(queue, row, now + self._sources[source][1])
            try:
                job.data = queue.serializer.loads(records.loaded(row[-1]))
            except Exception as error:
                bad.append(records.undecodable_row(job, error))
            else:
                jobs.append(job)
            self.shared.turn = source + 1
        return jobs, bad

    def _in_order(self, rows: Iterable[Sequence[Any]]) -> list[tuple[int, Sequence[Any]]]:
        """Return the deliveries in the order in which they were taken, with their sources."""
        waited = len(statements.CLAIMED) - 2
        taken = [(int(row[2].rpartition(":")[2]), row) for row in rows]
        taken.sort(key=lambda one: (one[0], -one[1][5], one[1][waited], one[1][0]))
        if not self._round_robin:
            return taken
        turns: dict[int, int] = {}
        order = []
        for source, row in taken:
            turns[source] = turns.get(source, 0) + 1
            shifted = (source - self.shared.turn) % len(self._queues)
            order.append((turns[source], shifted, source, row))
        return [(source, row) for _, _, source, row in sorted(order, key=lambda one: one[:2])]
