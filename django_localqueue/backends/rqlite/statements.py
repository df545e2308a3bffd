"""The statements of putting, claiming and settling; every verb is one request.

A request may be applied twice: a late copy changes nothing and answers as the first did. Texts
travel in JSON documents, where rqlite takes none of them for a BLOB.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.records import document
from django_localqueue.transports.statements import Statement


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL on a message ``m``, and the JSON document of the values that it takes from ``?5``."""

    sql: str
    values: str


#: Due jobs that one claim promotes, and leases that it lets lapse, of each queue.
PROMOTIONS = 64
#: Jobs whose deliveries are used up that one claim looks for beyond those it wants.
_USED_UP = 16


def operation(now: int) -> str:
    """Return a new id, greater than those of earlier times; nobody can guess it."""
    return f"{max(now, 0):016x}{secrets.token_hex(10)}"


# ---- putting

_PUT = "INSERT INTO localqueue_do_put (op, now, queue, jobs) VALUES (?1, ?2, ?3 ->> 0, ?4)"
_ANSWER = "SELECT answer, verb, found FROM localqueue_ops WHERE op = ?"
# Where the jobs stand that were put without a job_id, and those of the job_ids in ?2.
_STANDS = """SELECT m.job_id, m.id, m.state, m.at FROM localqueue_ops o
  CROSS JOIN localqueue_messages m ON m.id >= CAST(o.answer AS INTEGER)
    AND m.id < CAST(o.answer AS INTEGER) + ?4 AND m.job_id IS NULL
  WHERE o.op = ?1
UNION ALL SELECT m.job_id, m.id, m.state, m.at FROM localqueue_queues q
  CROSS JOIN json_each(?2) job CROSS JOIN localqueue_messages m INDEXED BY localqueue_job_id
  ON m.queue = q.id AND m.job_id = job.value AND m.job_id IS NOT NULL
  WHERE q.name = ?3 ->> 0"""


def put(
    op: str, now: int, queue: str, rows: Sequence[Sequence[Any]], plain: bool
) -> list[Statement]:
    """Store jobs, of which no two have one job_id.

    The second result has the first id that was given; it is followed by the others without a
    gap. Unless the jobs are ``plain`` the third tells where they stand, as job_id, id, state, at.
    """
    request: list[Statement] = [
        [_PUT, op, now, document([queue]), document(rows)],
        [_ANSWER, op],
    ]
    if not plain:
        job_ids = [row[1] for row in rows if row[1] is not None]
        request.append([_STANDS, op, document(job_ids), document([queue]), len(rows)])
    return request


# ---- settling

_SETTLE = """INSERT INTO localqueue_do_settle (queue, id, receipt, verb, now, boot, delay,
    max_retries, result, reason, err_class, err_message, err_place, traceback)
  SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, ?2, ?3, value ->> 4, value ->> 5,
    value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11
  FROM json_each(?1) ORDER BY key"""

# Null where the verb holds; else why the receipt ?(2) is not live for the verb ?(3).
_VERDICT = """CASE WHEN m.id IS NULL THEN 'unknown'
      WHEN m.receipt = item.value ->> 2 THEN CASE
        WHEN m.state = 3 OR m.verb = 5 THEN 'expired'
        WHEN m.verb = item.value ->> 3 THEN NULL ELSE 'settled' END
      WHEN m.prev_receipt = item.value ->> 2 THEN iif(m.prev_verb = 5, 'expired', 'settled')
      ELSE 'unknown' END"""
_VERDICTS = f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  SELECT ?1, ?2, 'settle', (SELECT json_group_array(json_array(item.key, {_VERDICT}))
    FROM json_each(?3) item
    LEFT JOIN localqueue_queues q ON q.name = item.value ->> 0
    LEFT JOIN localqueue_messages m ON m.id = item.value ->> 1 AND m.queue = q.id)
  WHERE NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?1)"""


def settle(op: str, now: int, boot: int, rows: Sequence[Sequence[Any]]) -> list[Statement]:
    """Carry out settlements in order; the answer of ``op`` has a verdict for each."""
    return [
        [_SETTLE, document(rows), now, boot],
        [_VERDICTS, op, now, document([row[:4] for row in rows])],
    ]


def answer(op: str) -> Statement:
    """Read what an operation answered the first time: the answer, the verb, the number found."""
    return [_ANSWER, op]


_EXTEND = """UPDATE localqueue_messages SET at = max(at, ?4)
  WHERE id = ?1 AND receipt = ?2 AND state = 3 AND at > ?3
    AND queue = (SELECT id FROM localqueue_queues WHERE name = ?5 ->> 0)"""
_EXTENDED = f"""SELECT m.at, m.cancel,
    CASE WHEN m.receipt = item.value ->> 2 AND m.state = 3 AND m.at > ?2 THEN NULL
      ELSE coalesce({_VERDICT}, 'settled') END
  FROM json_each(?1) item
  LEFT JOIN localqueue_queues q ON q.name = item.value ->> 0
  LEFT JOIN localqueue_messages m ON m.id = item.value ->> 1 AND m.queue = q.id"""


def extend(queue: str, key: int, receipt: str, boot: int, until: int) -> list[Statement]:
    """Keep a lease until ``until``; the answer has its end, the wish to cancel, the loss."""
    return [
        [_EXTEND, key, receipt, boot, until, document([queue])],
        [_EXTENDED, document([[queue, key, receipt, 0]]), boot],
    ]


# ---- claiming

# Sources are a JSON array of [queue, lease, max_retries].
_OPEN = """json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0 AND q.paused = 0
    CROSS JOIN localqueue_messages m ON m.id IN"""

_PROMOTE = f"""UPDATE localqueue_messages SET state = 0, since = max(since, at)
  WHERE id IN (SELECT m.id FROM {_OPEN}
    (SELECT due.id FROM localqueue_messages due INDEXED BY localqueue_due
      WHERE due.queue = q.id AND due.state = 1 AND due.at <= ?2
      ORDER BY due.at, due.id LIMIT {PROMOTIONS}))"""

_LAPSED = f"""(SELECT late.id FROM localqueue_messages late INDEXED BY localqueue_lease
      WHERE late.queue = q.id AND late.state = 3 AND late.at <= ?3
      ORDER BY late.at, late.id LIMIT {PROMOTIONS})"""
_LAPSE = """INSERT INTO localqueue_do_settle (queue, id, receipt, verb, now, boot, delay,
    max_retries, err_class, err_message, err_place, traceback)
  SELECT q.name, m.id, m.receipt, 5, ?2, ?3, 0, source.value ->> 2, '',
    'Delivery ' || m.attempts || ' to ' || iif(coalesce(m.worker, '') = '', 'a worker', m.worker)
      || ' was never settled: its lease ran out, so the worker died or stalled.', '', ''
  FROM """
_LAPSE_SOME = f"{_LAPSE}{_OPEN} {_LAPSED} ORDER BY source.key, m.at, m.id"

# The limit may have been lowered since the job was last given back.
_BURY = f"""UPDATE localqueue_messages SET state = 5, at = ?2, reason = 'exhausted'
  WHERE id IN (SELECT m.id FROM {_OPEN}
    (SELECT head.id FROM localqueue_messages head INDEXED BY localqueue_ready
      WHERE head.queue = q.id AND head.state = 0 AND head.prio >= ?3
      ORDER BY head.prio DESC, head.since, head.id LIMIT ?4 + {_USED_UP})
    WHERE m.attempts > coalesce(m.max_retries, source.value ->> 2))"""

_OURS = """json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
    CROSS JOIN localqueue_messages m INDEXED BY localqueue_lease
      ON m.queue = q.id AND m.state = 3 AND m.at = ?2 + (source.value ->> 1)
        AND m.receipt > ?3 || ':' AND m.receipt < ?3 || ';'"""

_CLAIM = f"""UPDATE localqueue_messages SET
    state = 3, at = ?2 + picked.lease, attempts = attempts + 1, prev_receipt = receipt,
    prev_verb = verb, receipt = ?3 || ':' || picked.place, verb = NULL, started = ?4,
    worker = ?5 ->> 0, since = iif(grp IS NULL, since, max(?4, {schema.LAST_ID}))
  FROM (SELECT job, lease, row_number() OVER (ORDER BY iif(?8, turn, source), iif(?8,
        (source + ?9) % ?10, turn)) AS place
    FROM (SELECT m.id AS job, source.key AS source, source.value ->> 1 AS lease,
        row_number() OVER (PARTITION BY source.key ORDER BY m.prio DESC, m.since, m.id) AS turn
      FROM {_OPEN}
      (SELECT head.id FROM localqueue_messages head INDEXED BY localqueue_ready
        WHERE head.queue = q.id AND head.state = 0 AND head.prio >= ?6
          AND head.attempts <= coalesce(head.max_retries, source.value ->> 2)
        ORDER BY head.prio DESC, head.since, head.id LIMIT ?7))
    ORDER BY place LIMIT ?7) AS picked
  WHERE localqueue_messages.id = picked.job
    AND NOT EXISTS (SELECT 1 FROM {_OURS})"""

_CLAIMED = f"""SELECT source.key, m.id, m.job_id, m.receipt, m.attempts, m.max_retries, m.prio,
    m.grp, m.task, m.created, m.headers, m.payload FROM {_OURS}"""


def claim(
    token: str,
    now: int,
    boot: int,
    sources: Sequence[tuple[str, int, int]],
    want: int,
    *,
    floor: int,
    worker: str,
    turn: int | None,
) -> list[Statement]:
    """Promote what is due, let lapsed leases go, and take up to ``want`` jobs.

    ``turn`` is the index of the source that is first to take from when taking turns. The last
    result has the jobs taken; their receipts end with their place in the order.
    """
    named = document(sources)
    count = len(sources)
    turns = [0, 0, 1] if turn is None else [1, count - turn % count, count]
    return [
        [_PROMOTE, named, now],
        [_LAPSE_SOME, named, now, boot],
        [_BURY, named, now, floor, want],
        [_CLAIM, named, boot, token, now, document([worker]), floor, want, *turns],
        [_CLAIMED, named, boot, token],
    ]


_OUTLOOK = """SELECT
    EXISTS (SELECT 1 FROM localqueue_messages INDEXED BY localqueue_ready
      WHERE queue = q.id AND state = 0 AND prio >= ?2),
    (SELECT at FROM localqueue_messages INDEXED BY localqueue_due
      WHERE queue = q.id AND state = 1 ORDER BY at LIMIT 1),
    (SELECT at FROM localqueue_messages INDEXED BY localqueue_lease
      WHERE queue = q.id AND state = 3 ORDER BY at LIMIT 1)
  FROM json_each(?1) source
  CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0 AND q.paused = 0"""


def outlook(sources: Sequence[tuple[str, int, int]], floor: int) -> list[Statement]:
    """Look whether and when there is something to claim; costs no Raft entry."""
    return [[_OUTLOOK, document(sources), floor]]


# ---- changing jobs from outside: what a verb does is in the triggers on localqueue_ops

_ONCE = "NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?1)"
_QUEUE = "(SELECT id FROM localqueue_queues WHERE name = ?3 ->> 0)"


def found_id(queue: str, id: str) -> str:
    """Return SQL for the key of a job by its public id: the caller's where given, else its own.

    ``queue`` is SQL for the key of its queue, ``id`` for a JSON array as ``public_id`` makes it.
    """
    return f"""coalesce((SELECT id FROM localqueue_messages INDEXED BY localqueue_job_id
      WHERE queue = {queue} AND job_id = {id} ->> 0 AND job_id IS NOT NULL),
    (SELECT id FROM localqueue_messages
      WHERE id = {id} ->> 1 AND queue = {queue} AND job_id IS NULL))"""


_ACTS = {
    "retry": "iif(m.state = 5, 'retry', 'none')",
    "cancel": "CASE WHEN m.state IN (0, 1, 2) THEN 'cancelled' WHEN m.state = 3 THEN 'stop'"
    " ELSE 'none' END",
}


def act_on_one(op: str, now: int, queue: str, id: str, act: str) -> list[Statement]:
    """Retry or cancel the job with a public id; the answer of ``op`` says what became of it."""
    insert = f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  SELECT ?1, ?2, {_ACTS[act]}, json_array(m.id) FROM localqueue_messages m
  WHERE m.id = {found_id(_QUEUE, "?4")} AND {_ONCE}"""
    return [[insert, op, now, document([queue]), id], answer(op)]


def act_on_many(
    op: str, now: int, queue: str, ids: Sequence[str], verb: str, where: Condition
) -> list[Statement]:
    """Do ``verb`` to the jobs with these public ids that match; ``where`` has its values in ?5."""
    insert = f"""INSERT INTO localqueue_ops (op, at, verb, answer, found)
  SELECT ?1, ?2, ?6, matching, found FROM (
    SELECT json_group_array(m.id) FILTER (WHERE {where.sql}) AS matching, count(m.id) AS found
    FROM json_each(?4) named LEFT JOIN localqueue_messages m
      ON m.id = {found_id(_QUEUE, "named.value")})
  WHERE {_ONCE}"""
    named = f"[{','.join(ids)}]"
    return [[insert, op, now, document([queue]), named, where.values, verb], answer(op)]


def purge(op: str, now: int, queue: str, state: int, before: int, limit: int) -> list[Statement]:
    """Remove up to ``limit`` jobs of a finished state that finished at ``before`` or earlier."""
    index = {schema.ACKED: "localqueue_acked", schema.FAILED: "localqueue_failed"}[state]
    insert = f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  SELECT ?1, ?2, 'purge', ids FROM (SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM localqueue_messages INDEXED BY {index}
    WHERE queue = {_QUEUE} AND state = {state} AND at <= ?4 ORDER BY at, id LIMIT ?5))
  WHERE {_ONCE}"""
    return [[insert, op, now, document([queue]), before, limit], answer(op)]


_RECLAIM = f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  SELECT ?4, ?2, 'reclaim', ids FROM (
    SELECT json_group_array(m.id) AS ids FROM {_OPEN.replace("AND q.paused = 0", "")} {_LAPSED})
  WHERE NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?4)"""
# Those of this operation alone: a late copy lets no others lapse.
_LAPSE_THOSE = f"""{_LAPSE}json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
    CROSS JOIN json_each((SELECT answer FROM localqueue_ops WHERE op = ?4)) late
    CROSS JOIN localqueue_messages m ON m.id = late.value AND m.state = 3 AND m.at <= ?3
  ORDER BY m.at, m.id"""


def reclaim(op: str, now: int, boot: int, queue: str, max_retries: int) -> list[Statement]:
    """Give back up to ``PROMOTIONS`` jobs whose lease ran out."""
    source = document([[queue, 0, max_retries]])
    return [
        [_RECLAIM, source, now, boot, op],
        [_LAPSE_THOSE, source, now, boot, op],
        answer(op),
    ]


def set_paused(queue: str, paused: bool) -> list[Statement]:
    """Stop or resume delivery."""
    insert = (
        "INSERT INTO localqueue_queues (name, paused) VALUES (?1 ->> 0, ?2)"
        " ON CONFLICT (name) DO UPDATE SET paused = excluded.paused"
    )
    return [[insert, document([queue]), int(paused)]]
