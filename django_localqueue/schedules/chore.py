"""The chore of a worker that puts the jobs of schedules when they are due.

Every worker looks; a store lets one of them move a schedule from a due time, in the
transaction that puts the job. So a due time gives one job, however many workers there are.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.queues import queues
from django_localqueue.records import ScheduleRecord
from django_localqueue.schedules.acts import new_job
from django_localqueue.schedules.cron import Timing
from django_localqueue.schedules.declared import Declared, declared
from django_localqueue.types import MICROSECONDS
from django_localqueue.worker.chores import Chore

logger = logging.getLogger("django_localqueue.schedules")

LONGEST = 5.0  # seconds between two looks: what others paused or ran is seen by then
SHORTEST = 0.05
#: Microseconds after which a time that nobody acted on counts as missed.
GRACE = 60 * MICROSECONDS
#: Microseconds after which a schedule is told again that the code has it; and after which one
#: that no code has is removed.
TOLD = 43_200 * MICROSECONDS
KEPT = 3 * 86_400 * MICROSECONDS
#: Jobs of missed times that one look puts.
AT_ONCE = 100
_FIELDS = ("expression", "timezone", "task", "queue", "args", "kwargs", "job", "missed", "overlap")


class Scheduler(Chore):
    """Runs the schedules of the code whose queues are in the stores of these."""

    name = "schedules"

    def __init__(self, served: Sequence[BaseQueue]) -> None:
        self._stores = {queue.store_key: queue for queue in served}
        self._declared = declared()

    def run(self, worker: str, ended: threading.Event) -> float:
        pauses = [LONGEST * random.uniform(0.8, 1)]
        for store in self._stores.values():
            pauses.append(self._look(store))
        return max(SHORTEST, min(pauses))

    def _look(self, store: BaseQueue) -> float:
        """Do what is due in a store; return in how many seconds something is."""
        rows = {record.name: record for record in store.schedules()}
        now = store.now()
        soonest = now + round(LONGEST * MICROSECONDS)
        names = set()
        for one in self._declared:
            names.add(one.name)
            try:
                queue = queues[one.alias()]
                if queue.store_key != store.store_key:
                    continue
                record = one.record(now)
            except (InvalidInput, LookupError) as error:
                logger.debug("%s is left out: %s", one.where, error)  # the check says so aloud
                continue
            row = rows.get(one.name)
            if row is None or _differs(row, record) or now - row.seen_at > TOLD:
                queue.save_schedule(record)
                row = next(found for found in store.schedules() if found.name == one.name)
            if not row.paused:
                soonest = min(soonest, self._fire(queue, one, record, row, now))
        for name, row in rows.items():
            if name not in names and now - row.seen_at > KEPT and store.forget_schedule(name):
                logger.info("The schedule %s is removed: no code has had it for days.", name)
        return (soonest - now) / MICROSECONDS

    def _fire(
        self,
        queue: BaseQueue,
        one: Declared,
        record: ScheduleRecord,
        row: ScheduleRecord,
        now: int,
    ) -> int:
        """Put what is due of one schedule; return when the next is due."""
        if row.next_at > now:
            return row.next_at
        timing = Timing(record.expression, record.timezone)
        due = self._due(timing, record, row, now)
        at = row.next_at
        last_id = row.last_id
        for moment, following in due:
            if at != moment:
                queue.fire_schedule(one.name, at, moment, None)
                at = moment
            job = None if self._overlaps(queue, record, last_id) else new_job(record, now)
            put = queue.fire_schedule(one.name, moment, following, job)
            if job is not None:
                if put is None:
                    return now  # another worker was faster, or paused it: look again
                logger.info("The schedule %s put the job %s.", one.name, put)
                last_id = put
            else:
                logger.info("The schedule %s is skipped: its last job isn't done.", one.name)
            at = following
        if not due:
            at = timing.after(now)
            queue.fire_schedule(one.name, row.next_at, at, None)
        return at

    def _due(
        self, timing: Timing, record: ScheduleRecord, row: ScheduleRecord, now: int
    ) -> list[tuple[int, int]]:
        """Return the due times that get a job, each with the time that follows it."""
        times = []
        missed = 0
        for moment in timing.until(row.next_at, now):
            times.append(moment)
            missed += moment < now - GRACE
            if record.missed == "all" and len(times) == AT_ONCE:
                break
            if record.missed != "all":
                del times[:-1]
        if missed:
            logger.warning(
                "The schedule %s missed %d times while no worker ran (policy: %s).",
                *(record.name, missed, record.missed),
            )
        if record.missed == "skip":
            times = [moment for moment in times if moment >= now - GRACE]
        return [(moment, timing.after(moment)) for moment in times]

    def _overlaps(self, queue: BaseQueue, record: ScheduleRecord, last_id: str | None) -> bool:
        if record.overlap == "allow" or last_id is None:
            return False
        last = queue.lookup(last_id)
        return last is not None and last.state not in ("acked", "failed")


def _differs(row: ScheduleRecord, record: ScheduleRecord) -> bool:
    return any(getattr(row, name) != getattr(record, name) for name in _FIELDS)
