"""Moving the messages of ``RqliteTransport`` into a queue of the same cluster, once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_localqueue.backends.arguments import Message
from django_localqueue.backends.rqlite import records, statements
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.transports.messages import PARKED

BATCH = 500


class Adopted(NamedTuple):
    """How many messages were moved, and how many were left in groups that are in flight."""

    moved: int
    left: int


_IN_FLIGHT = f"""(SELECT group_id FROM messages
    WHERE locked_by IS NOT NULL AND locked_by <> '{PARKED}' AND lock_expiry >= ?1)"""
_WAITING = f"""SELECT m.seq, m.group_id, m.event, g.priority,
    iif(m.locked_by = '{PARKED}' AND m.lock_expiry > ?1, m.lock_expiry - ?1, 0)
  FROM messages m LEFT JOIN groups g ON g.group_id = m.group_id
  WHERE m.seq > ?2 AND m.group_id NOT IN {_IN_FLIGHT} ORDER BY m.seq LIMIT {BATCH}"""

# One request: what is put is gone from the other table, in whatever state a copy finds both.
_PUT = f"""INSERT INTO localqueue_do_put (op, now, queue, jobs)
  SELECT ?2, ?3, ?4 ->> 0, json_group_array(json(job.value -> 1)) FROM json_each(?5) job
  WHERE EXISTS (SELECT 1 FROM messages m WHERE m.seq = job.value ->> 0
    AND m.group_id NOT IN {_IN_FLIGHT})"""
_REMOVE = f"""DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?3))
  AND group_id NOT IN {_IN_FLIGHT}
  AND EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?2 AND verb = 'put')"""
_REMOVE_GROUPS = """DELETE FROM groups
  WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.group_id = groups.group_id)"""
_MOVED = """UPDATE localqueue_ops SET verb = 'adopt',
    found = max(0, (SELECT max(id) FROM localqueue_messages) - CAST(answer AS INTEGER) + 1)
  WHERE op = ?1 AND verb = 'put'"""


def adopt(shared: SharedStore, queue: str) -> Adopted:
    """Move what waits; a group with a message in flight is left whole, so that order holds."""
    (tables,) = shared.read(
        [["SELECT count(*) FROM sqlite_master WHERE name IN ('messages', 'groups')"]]
    )
    if tables.rows[0][0] < 2:
        return Adopted(0, 0)
    moved, last = 0, -1
    while True:
        now = shared.times()[0] / 1_000_000
        (waiting,) = shared.read([[_WAITING, now, last]])
        if not waiting.rows:
            break
        last = waiting.rows[-1][0]
        moved += _move(shared, queue, waiting.rows)
    (left,) = shared.read([["SELECT count(*) FROM messages"]])
    return Adopted(moved, left.rows[0][0])


def _move(shared: SharedStore, queue: str, rows: Sequence[Sequence[Any]]) -> int:
    now, _ = shared.times()
    op = statements.operation(now)
    jobs = [[seq, records.put_row(_message(*row))] for seq, *row in rows]
    seqs = [seq for seq, _ in jobs]
    seconds = now / 1_000_000
    results = shared.request(
        [
            [_PUT, seconds, op, now, records.document([queue]), records.document(jobs)],
            [_REMOVE, seconds, op, records.document(seqs)],
            [_REMOVE_GROUPS],
            [_MOVED, op],
            statements.answer(op),
        ]
    )
    shared.bell.ring()
    return int(results[-1].rows[0][2])


def _message(group: str, event: str, priority: int | None, rest: float) -> Message:
    return Message(
        payload=event.encode(),
        job_id=None,
        delay=round(rest * 1_000_000),
        priority=priority or 0,
        group_id=group,
        max_retries=None,
        task=None,
        headers=None,
    )
