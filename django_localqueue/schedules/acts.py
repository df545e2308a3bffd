"""What is done with schedules by hand. Nothing of the project is imported for it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.queues import queues
from django_localqueue.records import ScheduleRecord
from django_localqueue.schedules.cron import Timing
from django_localqueue.types import JobId, NewJob


def new_job(record: ScheduleRecord, now: int) -> NewJob:
    """Return the job that a schedule puts."""
    more = dict(record.job)
    headers = {**more.pop("headers", {}), "enqueued_at": now, "schedule": record.name}
    known = {field.name for field in dataclasses.fields(NewJob)}
    return NewJob(
        {"args": list(record.args), "kwargs": dict(record.kwargs)},
        str(uuid.uuid4()),
        task=record.task,
        headers=headers,
        **{key: value for key, value in more.items() if key in known},
    )


def stored() -> Iterator[tuple[BaseQueue, ScheduleRecord]]:
    """Return every schedule of every store, with the queue that its jobs go to.

    Those whose queue LOCALQUEUE doesn't have are left out.
    """
    seen = set()
    everything = queues.all()
    for queue in everything:
        if queue.store_key in seen:
            continue
        seen.add(queue.store_key)
        names = {one.name: one for one in everything if one.store_key == queue.store_key}
        for record in queue.schedules():
            if record.queue in names:
                yield names[record.queue], record


def find(name: str) -> tuple[BaseQueue, ScheduleRecord]:
    """Return a schedule by name, with its queue; raises ``InvalidInput`` where there is none."""
    known = []
    for queue, record in stored():
        if record.name == name:
            return queue, record
        known.append(record.name)
    raise InvalidInput(f"There is no schedule {name!r}; there are {', '.join(known) or 'none'}.")


def run_now(name: str) -> JobId:
    """Put the schedule's job now, also where it is paused; its next time stays."""
    queue, record = find(name)
    job = new_job(record, queue.now())
    return queue.put_many([job])[0]


def pause(name: str) -> None:
    """Let it put no jobs until ``resume``."""
    queue, _ = find(name)
    queue.pause_schedule(name)


def resume(name: str) -> int:
    """Let it go on; times that passed meanwhile are not made up for. Return its next time."""
    queue, record = find(name)
    next_at = Timing(record.expression, record.timezone).after(queue.now())
    queue.pause_schedule(name, False, next_at=next_at)
    return next_at
