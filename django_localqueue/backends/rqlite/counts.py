"""Failures by what went wrong, and what was done by the minute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django_localqueue.backends.rqlite.records import document, loaded
from django_localqueue.backends.rqlite.schema import MINUTE, QUEUE, SLOT
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.transports.statements import Statement
from django_localqueue.types import Activity, FailureGroup

_HOUR, _DAY, _WEEK = 12, 288, 2_016  # slots
_POINTS = 28
#: Jobs that one request counts.
_LOOK = 20_000
#: Microseconds after which no client's clock still ends a job in a minute that is over.
_MARGIN = 5_000_000
_KEPT = 5 * 7 * 24 * 60  # minutes

_GROUPS = f"""SELECT f.id, f.err_class, f.place, f.task, f.total, f.first_at, f.last_at,
    (SELECT json_group_array(json_array(c.slot, c.n)) FROM localqueue_failure_counts c
      WHERE c.failure = f.id AND c.slot >= ?5)
  FROM localqueue_failures f
  WHERE f.queue = {QUEUE} AND (f.last_at < ?2 OR (f.last_at = ?2 AND f.id < ?3))
  ORDER BY f.last_at DESC, f.id DESC LIMIT ?4"""


def failures(
    shared: SharedStore, queue: str, limit: int, after: tuple[int, int] | None
) -> list[FailureGroup]:
    """Return groups of dead letters, the one seen last first."""
    now = shared.times()[0] // SLOT
    at, id = after or (2**62, 2**62)
    (found,) = shared.read([[_GROUPS, document([queue]), at, id, limit, now - _WEEK]])
    return [_group(row, now) for row in found.rows]


def _group(row: Sequence[Any], now: int) -> FailureGroup:
    id, error_class, place, task, total, first_at, last_at, counts = row
    slots: list[tuple[int, int]] = json.loads(counts)
    series = [0] * _POINTS
    for slot, number in slots:
        point = (slot - (now - _WEEK + 1)) // (_WEEK // _POINTS)
        series[min(max(point, 0), _POINTS - 1)] += number

    def since(span: int) -> int:
        return sum(number for slot, number in slots if slot >= now - span)

    return FailureGroup(
        str(id),
        loaded(error_class).decode(),
        loaded(place).decode(),
        task,
        total,
        since(_HOUR),
        since(_DAY),
        since(_WEEK),
        first_at,
        last_at,
        tuple(series),
    )


_ROLLED = "(SELECT rolled FROM localqueue_queues WHERE name = ?1 ->> 0)"
_ACKED = f"""FROM localqueue_messages INDEXED BY localqueue_acked
  WHERE queue = {QUEUE} AND state = 4 AND at >= {_ROLLED} AND at <"""
# Where one request stops counting: at most so many jobs further, and never where it began.
_END = f"""min(?2, max(1 + {_ROLLED},
    coalesce((SELECT at {_ACKED} ?2 ORDER BY at LIMIT 1 OFFSET {_LOOK}), ?2)))"""
_ROLL = f"""INSERT INTO localqueue_activity (queue, minute, acked)
  SELECT queue, at / {MINUTE}, count(*) {_ACKED} {_END} GROUP BY 1, 2
  ON CONFLICT (queue, minute) DO UPDATE SET acked = acked + excluded.acked"""
_TOLD = f"""UPDATE localqueue_queues SET rolled = max(rolled, {_END})
  WHERE name = ?1 ->> 0"""
_FORGET = f"DELETE FROM localqueue_activity WHERE queue = {QUEUE} AND minute < ?2 / {MINUTE} - ?3"
_BEHIND = f"SELECT count(*) FROM (SELECT 1 {_ACKED} ?2 LIMIT 1)"


def _roll(shared: SharedStore, name: str, until: int) -> None:
    """Count what was acked before ``until``, in as many requests as it takes."""
    request: list[Statement] = [
        [_ROLL, name, until],
        [_TOLD, name, until],
        [_FORGET, name, until, _KEPT],
        [_BEHIND, name, until],
    ]
    while shared.request(request)[-1].rows[0][0]:
        pass


def roll_up(shared: SharedStore, queue: str) -> None:
    """Count what was acked so far, so that the rows may go."""
    _roll(shared, document([queue]), shared.times()[0] + 1)


_STEPS = f"""SELECT minute, acked, failed FROM localqueue_activity
  WHERE queue = {QUEUE} AND minute >= ?2 AND minute < ?3
UNION ALL SELECT at / {MINUTE}, count(*), 0 {_ACKED} ?5 AND at >= ?4 GROUP BY 1"""


def activity(shared: SharedStore, queue: str, since: int, until: int, step: int) -> list[Activity]:
    """Return what was done from ``since`` to ``until`` in steps; multiples of a minute."""
    closed = (shared.times()[0] - _MARGIN) // MINUTE * MINUTE
    name = document([queue])
    if shared.read([[_BEHIND, name, closed]])[0].rows[0][0]:
        _roll(shared, name, closed)
    bounds = (since // MINUTE, until // MINUTE, since, until)
    (found,) = shared.read([[_STEPS, name, *bounds]])
    return _steps(found.rows, since, until, step)


def _steps(rows: Iterable[Sequence[Any]], since: int, until: int, step: int) -> list[Activity]:
    acked: dict[int, int] = {}
    failed: dict[int, int] = {}
    for minute, done, dead in rows:
        index = (minute * MINUTE - since) // step
        acked[index] = acked.get(index, 0) + done
        failed[index] = failed.get(index, 0) + dead
    return [
        Activity(at, acked.get(index, 0), failed.get(index, 0))
        for index, at in enumerate(range(since, until, step))
    ]
