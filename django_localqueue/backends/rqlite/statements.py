"""The statements of putting, claiming and settling; every verb is one request.

A request may be applied twice: a late copy changes nothing and answers as the first did. Texts
travel in JSON documents, where rqlite takes none of them for a BLOB.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.records import document
from django_localqueue.transports.statements import Statement
from django_localqueue.types import MICROSECONDS

#: A settlement: queue, id, receipt, verb, delay, max_retries, result, reason, class, message,
#: place and traceback of the error, whether the job has a group or a unique key.
SettleRow = Sequence[Any]

#: Due jobs that one claim promotes, and leases that it lets lapse, of each queue.
PROMOTIONS = 64
#: Jobs that are used up or expired that one claim looks for beyond those it wants.
_USED_UP = 64


def operation(now: int) -> str:
    """Return a new id, greater than those of earlier seconds; nobody can guess it."""
    return f"{max(now, 0) // MICROSECONDS:08x}{secrets.token_urlsafe(12)}"


_FORGET = """DELETE FROM localqueue_ops WHERE op IN (SELECT op FROM localqueue_ops
  WHERE op < printf('%08x', ?1) ORDER BY op LIMIT 256)"""


def forget(now: int) -> Statement:
    """Forget operations so old that no copy of them can still be on its way."""
    return [_FORGET, (now - schema.REMEMBERED) // MICROSECONDS]


# ---- putting

_PUT = "INSERT INTO localqueue_do_put (op, now, queue, jobs) VALUES (?1, ?2, ?3 ->> 0, ?4)"
_ANSWER = "SELECT answer, verb, found FROM localqueue_ops WHERE op = ?"
# Where the jobs stand that were put without a job_id, those of the job_ids in ?2, and those
# that hold the unique keys in ?5.
_STANDS = """SELECT m.job_id, m.id, m.state, m.at, NULL FROM localqueue_ops o
  CROSS JOIN localqueue_messages m ON m.id >= CAST(o.answer AS INTEGER)
    AND m.id < CAST(o.answer AS INTEGER) + ?4 AND m.job_id IS NULL
  WHERE o.op = ?1
UNION ALL SELECT m.job_id, m.id, m.state, m.at, NULL FROM localqueue_queues q
  CROSS JOIN json_each(?2) job CROSS JOIN localqueue_messages m INDEXED BY localqueue_job_id
  ON m.queue = q.id AND m.job_id = job.value AND m.job_id IS NOT NULL
  WHERE q.name = ?3 ->> 0
UNION ALL SELECT o.job_id, 0, 4, o.at, NULL FROM localqueue_queues q
  CROSS JOIN json_each(?6) job CROSS JOIN localqueue_once o
  ON o.queue = q.id AND o.job_id = job.value
  WHERE q.name = ?3 ->> 0 AND NOT EXISTS (SELECT 1 FROM localqueue_messages m
    INDEXED BY localqueue_job_id
    WHERE m.queue = q.id AND m.job_id = o.job_id AND m.job_id IS NOT NULL)
UNION ALL SELECT m.job_id, m.id, m.state, m.at, m.unique_key FROM localqueue_queues q
  CROSS JOIN json_each(?5) job CROSS JOIN localqueue_messages m INDEXED BY localqueue_unique
  ON m.queue = q.id AND m.unique_key = job.value AND m.unique_until IS NOT NULL
  WHERE q.name = ?3 ->> 0"""


def put(
    op: str, now: int, queue: str, rows: Sequence[Sequence[Any]], plain: bool
) -> list[Statement]:
    """Store jobs, of which no two have one job_id.

    The second result has the first id that was given; it is followed by the others without a
    gap. Unless the jobs are ``plain`` the third tells where they stand, as job_id, id, state,
    at and, for the job that holds it, the unique key.
    """
    outcome = put_outcome(op, queue, rows)
    put_them: Statement = [_PUT, op, now, document([queue]), document(rows)]
    return [put_them, *outcome[: 1 if plain else 2]]


def put_outcome(op: str, queue: str, rows: Sequence[Sequence[Any]]) -> list[Statement]:
    """Read the first id that a put gave, and where its jobs stand; the first is empty if none."""
    job_ids = [row[1] for row in rows if row[1] is not None]
    keys = sorted({row[9] for row in rows if row[9] is not None})
    return [
        [_ANSWER, op],
        [
            *(_STANDS, op, document(job_ids), document([queue]), len(rows)),
            *(document(keys), document([row[1] for row in rows if row[12] is not None])),
        ],
    ]


_ONCE_IDS = f"""SELECT o.job_id FROM localqueue_once o
  WHERE o.queue = {schema.QUEUE} AND o.at <= ?2
  LIMIT ?3"""
_FORGET_ONCE = f"""DELETE FROM localqueue_once
  WHERE queue = {schema.QUEUE}
    AND job_id IN (SELECT value FROM json_each(?2))"""


def once_ids(queue: str, before: int, limit: int) -> list[Statement]:
    """Read some ids of jobs that were put once at ``before`` or earlier."""
    return [[_ONCE_IDS, document([queue]), before, limit]]


def forget_once(queue: str, ids: Sequence[str]) -> list[Statement]:
    """Forget that jobs were put once."""
    return [[_FORGET_ONCE, document([queue]), document(ids)]]


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
      WHEN m.prev_receipt = item.value ->> 2 THEN CASE WHEN m.prev_verb = 5 THEN 'expired'
        WHEN m.prev_verb = item.value ->> 3 THEN NULL ELSE 'settled' END
      ELSE 'unknown' END"""
_VERDICTS = f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  SELECT ?1, ?2, 'settle', (SELECT json_group_array(json_array(item."key", {_VERDICT}))
    FROM json_each(?3) item
    LEFT JOIN localqueue_queues q ON q.name = item.value ->> 0
    LEFT JOIN localqueue_messages m ON m.id = item.value ->> 1 AND m.queue = q.id)
  WHERE NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?1)
  RETURNING answer"""
# An ack of a job without a group or a key needs none of what the other verbs do.
_ACK = """UPDATE localqueue_messages SET state = 4, at = ?2, verb = 1, result = done.result,
    err_class = NULL, err_message = NULL, err_place = NULL
  FROM (SELECT value ->> 0 AS queue, value ->> 1 AS job, value ->> 2 AS receipt,
      value ->> 6 AS result FROM json_each(?1)) AS done
  WHERE localqueue_messages.id = done.job AND localqueue_messages.receipt = done.receipt
    AND localqueue_messages.state = 3 AND localqueue_messages.at > ?3
    AND localqueue_messages.grp IS NULL AND localqueue_messages.queue = (
      SELECT id FROM localqueue_queues WHERE name = done.queue)"""


def settle(op: str, now: int, boot: int, rows: Sequence[SettleRow]) -> list[Statement]:
    """Carry out settlements in order; the last result has a verdict for each, or is empty.

    It is empty where an earlier copy of the request was applied; ``answer`` has them then.
    """
    request: list[Statement] = []
    acks, others = _apart(rows)
    if acks:
        request.append([_ACK, document(acks), now, boot])
    if others:
        request.append([_SETTLE, document(others), now, boot])
    return [*request, [_VERDICTS, op, now, document([row[:4] for row in rows])]]


def _apart(rows: Sequence[SettleRow]) -> tuple[list[SettleRow], list[SettleRow]]:
    """Return the acks of simple jobs, and the others; all together if order matters."""
    if len({row[1] for row in rows}) < len(rows):
        return [], list(rows)
    acks = [row for row in rows if row[3] == schema.ACK and not row[-1]]
    return acks, [row for row in rows if row[3] != schema.ACK or row[-1]]


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


# A late copy leaves what was told after it: within one delivery the later word counts.
_PROGRESS = """UPDATE localqueue_messages SET progress = ?4
  WHERE id = ?1 AND receipt = ?2 AND state = 3 AND at > ?3
    AND queue = (SELECT id FROM localqueue_queues WHERE name = ?5 ->> 0)
    AND NOT coalesce(progress ->> 'attempt' = ?4 ->> 'attempt'
      AND progress ->> 'at' > ?4 ->> 'at', 0)"""


def progress(queue: str, key: int, receipt: str, boot: int, value: str) -> list[Statement]:
    """Keep how far a job is; the answer is that of ``extend``."""
    return [
        [_PROGRESS, key, receipt, boot, value, document([queue])],
        [_EXTENDED, document([[queue, key, receipt, 0]]), boot],
    ]


# ---- claiming

#: A queue to claim from: its name, lease and max_retries, and what ``limits`` adds.
Source = tuple[Any, ...]
#: The columns that a claim returns.
CLAIMED = (
    *("id", "job_id", "receipt", "attempts", "max_retries", "prio", "grp", "task", "created"),
    *("headers", "expires", "unique_key", "retention", "waited", "payload"),
)

#: Jobs of queues that are not paused: to be followed by a list of ids for each queue ``q``.
OPEN = """json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0 AND q.paused = 0
    CROSS JOIN localqueue_messages m ON m.id IN"""

_PROMOTE = f"""UPDATE localqueue_messages SET state = 0, since = max(since, at)
  WHERE id IN (SELECT m.id FROM {OPEN}
    (SELECT due.id FROM localqueue_messages due INDEXED BY localqueue_due
      WHERE due.queue = q.id AND due.state = 1 AND due.at <= ?2
      ORDER BY due.at, due.id LIMIT {PROMOTIONS}))"""

#: Ids of the jobs of a queue ``q`` whose lease ran out.
LAPSED = f"""(SELECT late.id FROM localqueue_messages late INDEXED BY localqueue_lease
      WHERE late.queue = q.id AND late.state = 3 AND late.at <= ?3
      ORDER BY late.at, late.id LIMIT {PROMOTIONS})"""
#: Ends the deliveries of the jobs ``m`` of sources: to be followed by where they come from.
LAPSE = """INSERT INTO localqueue_do_settle (queue, id, receipt, verb, now, boot, delay,
    max_retries, err_class, err_message, err_place, traceback)
  SELECT q.name, m.id, m.receipt, 5, ?2, ?3, 0, source.value ->> 2, '',
    'Delivery ' || m.attempts || ' to ' || iif(coalesce(m.worker, '') = '', 'a worker', m.worker)
      || ' was never settled: its lease ran out, so the worker died or stalled.', '', ''
  FROM """
LAPSE_SOME = f"{LAPSE}{OPEN} {LAPSED} ORDER BY source.key, m.at, m.id"

# The limit may have been lowered since the job was last given back.
_BURY = f"""UPDATE localqueue_messages SET state = 5, at = ?2, ended = ?2,
    reason = iif(attempts = 0, 'expired', 'exhausted'),
    unique_until = iif(unique_until > ?2, unique_until, NULL)
  WHERE id IN (SELECT m.id FROM {OPEN}
    (SELECT head.id FROM localqueue_messages head INDEXED BY localqueue_ready
      WHERE head.queue = q.id AND head.state = 0 AND head.prio >= ?3
      ORDER BY head.prio DESC, head.since, head.id LIMIT ?4 + {_USED_UP})
    WHERE m.attempts > coalesce(m.max_retries, source.value ->> 2)
      OR (m.attempts = 0 AND m.expires <= ?2))"""

#: The jobs ``m`` that the claim ?3 took from sources.
OURS = """json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
    CROSS JOIN localqueue_messages m INDEXED BY localqueue_lease
      ON m.queue = q.id AND m.state = 3 AND m.at = ?2 + (source.value ->> 1)
        AND m.receipt > ?3 || ':' AND m.receipt < ?3 || ';'"""

# ``found`` says that an operation has claimed: a late copy of it takes no other jobs.
_NOT_CLAIMED = " AND NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?3 AND found IS NOT NULL)"
_HAS_CLAIMED = """INSERT INTO localqueue_ops (op, at, verb, found) VALUES (?1, ?2, 'claim', 1)
  ON CONFLICT (op) DO UPDATE SET found = 1"""
#: Whether a job may be delivered: to be filled with an alias, the retries of its queue, the time.
USABLE = """{0}attempts<=coalesce({0}max_retries,{1})
 AND({0}expires IS NULL OR {0}attempts>0 OR {0}expires>{2})"""


def taking(now: str, worker: str) -> str:
    """Return what every claim changes, without the lease's end and the receipt."""
    return f"""UPDATE localqueue_messages SET state=3,attempts=attempts+1,prev_receipt=receipt,\
prev_verb=verb,verb=NULL,started={now},worker={worker},waited=since,\
since=iif(grp IS NULL,since,max({now},(SELECT max(id) FROM localqueue_messages))),"""


# No UPDATE FROM here: rqlite 8 would not see that it returns rows.
_SOURCE = """FROM json_each(?1) source
        CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
      WHERE q.id = localqueue_messages.queue)"""
CLAIM = f"""{taking("?4", "?5->>0")}at = ?2 + (SELECT source.value ->> 1 {_SOURCE},
    receipt = ?3 || ':' || id || ':' || (SELECT source."key" {_SOURCE}
  WHERE id IN (SELECT job FROM (SELECT m.id AS job, source."key" AS source,
        row_number() OVER (PARTITION BY source."key" ORDER BY m.prio DESC, m.since, m.id) AS turn
      FROM {OPEN}
      (SELECT head.id FROM localqueue_messages head INDEXED BY localqueue_ready
        WHERE head.queue = q.id AND head.state = 0 AND head.prio >= ?6
          AND {USABLE.format("head.", "(source.value ->> 2)", "?4")}
        ORDER BY head.prio DESC, head.since, head.id LIMIT ?7))
    ORDER BY iif(?8, turn, source), iif(?8, (source + ?9) % ?10, turn) LIMIT ?7)"""
_FACTS = f"payload,json_array({','.join(CLAIMED[:-1])})"
_CLAIMED = f"SELECT m.payload, json_array({', '.join(f'm.{c}' for c in CLAIMED[:-1])}) FROM {OURS}"


def promote(
    now: int, boot: int, sources: Sequence[Source], want: int, floor: int
) -> list[Statement]:
    """Promote what is due, let lapsed leases go, and bury what is used up: some at a time."""
    named = document(sources)
    return [
        [_PROMOTE, named, now],
        [LAPSE_SOME, named, now, boot],
        [_BURY, named, now, floor, want],
    ]


def claim(
    token: str,
    now: int,
    boot: int,
    sources: Sequence[Source],
    want: int,
    *,
    floor: int,
    worker: str,
    turn: int | None,
    again: bool,
    sql: str = CLAIM,
) -> list[Statement]:
    """Take up to ``want`` jobs; the first result has each in no order, for ``facts``.

    ``again`` where an earlier copy may have claimed: nothing is taken then.

    ``turn`` is the index of the source that is first to take from when taking turns. A receipt
    is ``token``, the job's key, and the index of its source. ``sql`` is a statement to use that
    takes what ``CLAIM`` does.
    """
    count = len(sources)
    values = [document(sources), boot, token, now, document([worker]), floor, want]
    values += [0, 0, 1] if turn is None else [1, count - turn % count, count]
    if not again:
        return [[f"{sql} RETURNING {_FACTS}", *values]]
    return [
        [f"{sql}{_NOT_CLAIMED} RETURNING {_FACTS}", *values],
        [_HAS_CLAIMED, token, now],
    ]


def facts(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return ``CLAIMED`` of the rows that a claim returned."""
    others = json.loads(f"[{','.join(row[1] for row in rows)}]")
    return [[*other, row[0]] for row, other in zip(rows, others, strict=True)]


def claimed(token: str, boot: int, sources: Sequence[Source]) -> Statement:
    """Read the jobs that an earlier copy of the same ``claim`` took, as it returned them."""
    return [_CLAIMED, document(sources), boot, token]


OUTLOOK = """SELECT
    EXISTS (SELECT 1 FROM localqueue_messages INDEXED BY localqueue_ready
      WHERE queue = q.id AND state = 0 AND prio >= ?2),
    (SELECT at FROM localqueue_messages INDEXED BY localqueue_due
      WHERE queue = q.id AND state = 1 ORDER BY at LIMIT 1),
    (SELECT at FROM localqueue_messages INDEXED BY localqueue_lease
      WHERE queue = q.id AND state = 3 ORDER BY at LIMIT 1)
  FROM json_each(?1) source
  CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0 AND q.paused = 0"""


def outlook(sources: Sequence[Source], floor: int) -> list[Statement]:
    """Look whether and when there is something to claim; costs no Raft entry."""
    return [[OUTLOOK, document(sources), floor]]
