"""Settling and claiming for one call of ``exchange``."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any, cast

from django_localqueue.backends.arguments import microseconds
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.rqlite import records, statements
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.exceptions import LocalQueueError
from django_localqueue.types import MICROSECONDS, Job

SettleRow = list[Any]


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
        self._sources = [
            (
                queue.name,
                microseconds(lease_seconds or queue.lease_seconds, "lease_seconds"),
                queue.max_retries,
            )
            for queue in self._queues
        ]
        self._round_robin = round_robin
        self._min_priority = min_priority
        self._worker = worker

    def first(self, rows: Sequence[SettleRow]) -> tuple[list[str | None], list[Job]]:
        """Settle, and claim unless it is better to look first; return verdicts and jobs."""
        if rows or (self.want and self.shared.busy):
            return self.settle_and_claim(rows)
        return [], []

    def look(self) -> float:
        """Return in how many seconds there may be something to claim; infinity: unknown."""
        now, boot = self.shared.times()
        (found,) = self.shared.read(statements.outlook(self._sources, self._min_priority))
        soonest = math.inf
        for ready, due, lapse in found.rows:
            waits = [0.0] if ready else []
            waits += [(at - time) / MICROSECONDS for at, time in ((due, now), (lapse, boot)) if at]
            soonest = min([soonest, *waits])
        return max(0.0, soonest)

    def settle_and_claim(self, rows: Sequence[SettleRow]) -> tuple[list[str | None], list[Job]]:
        """Do both in one request; a payload that can't be decoded makes its job a dead letter."""
        verdicts, jobs, bad = self._send(rows, self.want)
        while bad and not jobs:
            _, jobs, bad = self._send(bad, self.want)
        if bad:
            # Where this fails their leases run out, and they are met again.
            with contextlib.suppress(LocalQueueError):
                self._send(bad, 0)
        return verdicts, jobs

    def _send(
        self, rows: Sequence[SettleRow], want: int
    ) -> tuple[list[str | None], list[Job], list[SettleRow]]:
        shared = self.shared
        now, boot = shared.times()
        op = statements.operation(now)
        request = statements.settle(op, now, boot, rows) if rows else []
        if want:
            request += statements.claim(
                op,
                now,
                boot,
                self._sources,
                want,
                floor=self._min_priority,
                worker=self._worker,
                turn=shared.turn if self._round_robin else None,
            )
        if rows:
            request.append(statements.answer(op))
        results = shared.request(request)
        verdicts: list[str | None] = [None] * len(rows)
        if rows:
            for index, verdict in json.loads(results[-1].rows[0][0]):
                verdicts[index] = verdict
            shared.bell.ring()  # a job given back, or the next of a group
        if not want:
            return verdicts, [], []
        jobs, bad = self._delivered(results[-2 if rows else -1].rows, boot, now)
        shared.busy = bool(jobs or bad)
        return verdicts, jobs, bad

    def _delivered(
        self, rows: Sequence[Sequence[Any]], boot: int, now: int
    ) -> tuple[list[Job], list[SettleRow]]:
        """Return the jobs in their order, and how to settle those that can't be decoded."""
        jobs: list[Job] = []
        bad: list[SettleRow] = []
        for row in sorted(rows, key=_place):
            source = cast("int", row[0])
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


def _place(row: Sequence[Any]) -> int:
    """Return a delivery's place, which ends its receipt."""
    return int(row[3].rpartition(":")[2])
