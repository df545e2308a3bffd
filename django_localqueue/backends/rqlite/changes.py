"""The statements that change jobs from outside: retry, cancel, discard, purge, reclaim, pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.records import document
from django_localqueue.backends.rqlite.statements import LAPSE, LAPSED, OPEN, PROMOTIONS, answer
from django_localqueue.transports.statements import Statement


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL on a message ``m``, and the JSON document of the values that it takes from ``?5``."""

    sql: str
    values: str


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
    insert = f"""INSERT INTO localqueue_do_act (op, now, verb, jobs)
  SELECT ?1, ?2, {_ACTS[act]}, json_array(m.id) FROM localqueue_messages m
  WHERE m.id = {found_id(_QUEUE, "?4")}"""
    return [[insert, op, now, document([queue]), id], answer(op)]


# What each verb wants of a job besides the filter; ?7 has the due time and the target.
_WANTS = {
    "run_now": "m.state = 1",
    "delay": "(m.state = 0 OR m.at <> ?7 ->> 0)",
    "move": """NOT EXISTS (SELECT 1 FROM localqueue_messages met INDEXED BY localqueue_job_id
      WHERE met.queue = (SELECT id FROM localqueue_queues WHERE name = ?7 ->> 1)
        AND met.job_id = m.job_id AND met.job_id IS NOT NULL)
      AND (m.unique_until IS NULL OR (m.state = 5 AND m.unique_until <= ?2)
        OR NOT EXISTS (SELECT 1 FROM localqueue_messages holder INDEXED BY localqueue_unique
          WHERE holder.queue = (SELECT id FROM localqueue_queues WHERE name = ?7 ->> 1)
            AND holder.unique_key = m.unique_key AND holder.unique_until IS NOT NULL
            AND (holder.state NOT IN (4, 5) OR holder.unique_until > ?2)))""",
    "discarded": "(m.state <> 5 OR m.reason <> 'discarded')",
}


_EDIT = f"""UPDATE localqueue_messages AS m SET
    original = coalesce(original, payload), payload = ?3 ->> 1
  WHERE m.id = {found_id(_QUEUE, "?4")} AND m.state IN (0, 1, 2, 5)
    AND NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = ?1)"""
_EDITED = f"""INSERT OR IGNORE INTO localqueue_ops (op, at, verb, answer)
  SELECT ?1, ?2, iif(m.state IN (0, 1, 2, 5), 'edit', 'none'), m.id FROM localqueue_messages m
  WHERE m.id = {found_id(_QUEUE, "?4")}"""


def edit(op: str, now: int, queue: str, id: str, payload: str) -> list[Statement]:
    """Give a waiting or failed job another payload; the answer of ``op`` says whether it did."""
    return [
        [_EDIT, op, now, document([queue, payload]), id],
        [_EDITED, op, now, document([queue]), id],
        answer(op),
    ]


def act_on_many(
    op: str,
    now: int,
    queue: str,
    ids: Sequence[str],
    verb: str,
    where: Condition,
    due: int,
    target: str,
) -> list[Statement]:
    """Do ``verb`` to the jobs with these public ids that match; ``where`` has its values in ?5.

    ``due`` is the time to which ``delay`` puts them off, ``target`` the queue of ``move``.
    """
    insert = f"""INSERT INTO localqueue_do_act (op, now, verb, jobs, found, due, target)
  SELECT ?1, ?2, ?6, json_group_array(m.id)
      FILTER (WHERE {where.sql} AND {_WANTS.get(verb, "1")}), count(m.id), ?7 ->> 0, ?7 ->> 1
  FROM json_each(?4) named LEFT JOIN localqueue_messages m
    ON m.id = {found_id(_QUEUE, "named.value")}"""
    named = f"[{','.join(ids)}]"
    given = document([due, target])
    return [[insert, op, now, document([queue]), named, where.values, verb, given], answer(op)]


_FINISHED = {
    "acked": f"INDEXED BY localqueue_acked WHERE state = {schema.ACKED}",
    "failed": f"INDEXED BY localqueue_failed WHERE state = {schema.FAILED}",
    "discarded": "INDEXED BY localqueue_discarded WHERE reason = 'discarded'",
}


def purge(op: str, now: int, queue: str, kind: str, before: int, limit: int) -> list[Statement]:
    """Remove up to ``limit`` acked, failed or discarded jobs that had ended by ``before``."""
    insert = f"""INSERT INTO localqueue_do_act (op, now, verb, jobs)
  SELECT ?1, ?2, 'purge', json_group_array(id) FROM (
    SELECT id FROM localqueue_messages {_FINISHED[kind]}
      AND queue = {_QUEUE} AND at <= ?4 ORDER BY at, id LIMIT ?5)"""
    return [[insert, op, now, document([queue]), before, limit], answer(op)]


_KEPT = f"""SELECT m.id FROM localqueue_messages m INDEXED BY localqueue_kept
  WHERE m.queue = {schema.QUEUE} AND m.state = 4
    AND m.retention IS NOT NULL AND m.at + m.retention <= ?2 ORDER BY m.at + m.retention LIMIT ?3"""
_ACKED = f"""SELECT m.id, m.at, m.retention IS NULL
  FROM localqueue_messages m INDEXED BY localqueue_acked
  WHERE m.queue = {schema.QUEUE} AND m.state = 4
    AND (m.at, m.id) > (?4, ?5) AND m.at <= ?2 ORDER BY m.at, m.id LIMIT ?3"""


def kept(queue: str, now: int, limit: int) -> list[Statement]:
    """Read the keys of acked jobs whose own retention is over."""
    return [[_KEPT, document([queue]), now, limit]]


def acked(queue: str, before: int, after: tuple[int, int], limit: int) -> list[Statement]:
    """Read key and end of acked jobs behind a cursor, and whether the queue's retention counts."""
    return [[_ACKED, document([queue]), before, limit, *after]]


def lapsed(queue: str, boot: int) -> list[Statement]:
    """Read the key of a job whose lease ran out, if there is one."""
    sql = f"""SELECT id FROM localqueue_messages INDEXED BY localqueue_lease
  WHERE queue = {schema.QUEUE} AND state = 3 AND at <= ?2 LIMIT 1"""
    return [[sql, document([queue]), boot]]


def discarded(queue: str, before: int) -> list[Statement]:
    """Read the key of a job that was discarded so long ago, if there is one."""
    sql = f"""SELECT id FROM localqueue_messages INDEXED BY localqueue_discarded
  WHERE queue = {schema.QUEUE} AND reason = 'discarded' AND at <= ?2 LIMIT 1"""
    return [[sql, document([queue]), before]]


def remove(op: str, now: int, keys: Sequence[int]) -> list[Statement]:
    """Remove finished jobs by their keys."""
    insert = "INSERT INTO localqueue_do_act (op, now, verb, jobs) VALUES (?1, ?2, 'purge', ?3)"
    return [[insert, op, now, document(keys)]]


_RECLAIM = f"""INSERT INTO localqueue_do_act (op, now, verb, jobs)
  SELECT ?4, ?2, 'reclaim', json_group_array(m.id)
  FROM {OPEN.replace("AND q.paused = 0", "")} {LAPSED}"""
# Those of this operation alone: a late copy lets no others lapse.
_THOSE = f"""{LAPSE}json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
    CROSS JOIN json_each((SELECT answer FROM localqueue_ops WHERE op = ?4)) late
    CROSS JOIN localqueue_messages m ON m.id = late.value AND m.state = 3 AND m.at <= ?3
  ORDER BY m.at, m.id"""


def reclaim(op: str, now: int, boot: int, queue: str, max_retries: int) -> list[Statement]:
    """Give back up to ``PROMOTIONS`` jobs whose lease ran out."""
    source = document([[queue, 0, max_retries]])
    return [
        [_RECLAIM, source, now, boot, op],
        [_THOSE, source, now, boot, op],
        answer(op),
    ]


_HELD = """INSERT INTO localqueue_do_act (op, now, verb, jobs)
  SELECT ?4, ?2, 'reclaim', json_group_array(id) FROM (SELECT m.id
    FROM json_each(?1) source
    CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
    CROSS JOIN localqueue_messages m INDEXED BY localqueue_lease
      ON m.queue = q.id AND m.state = 3 AND m.worker = source.value ->> 3
    LIMIT ?3)"""
_ALL_LAPSED = 1 << 62
_THOSE_OF_THE_DEAD = _THOSE.replace(
    "its lease ran out, so the worker died or stalled.",
    "its worker died, for its process is gone.",
)


def take_back(op: str, now: int, queue: str, max_retries: int, worker: str) -> list[Statement]:
    """Give back up to ``PROMOTIONS`` jobs that a worker holds who is dead."""
    source = document([[queue, 0, max_retries, worker]])
    return [
        [_HELD, source, now, PROMOTIONS, op],
        [_THOSE_OF_THE_DEAD, source, now, _ALL_LAPSED, op],
        answer(op),
    ]


def set_paused(op: str, now: int, queue: str, paused: bool) -> list[Statement]:
    """Stop or resume delivery; a late copy fails, and so undoes no later call."""
    insert = (
        "INSERT INTO localqueue_queues (name, paused) VALUES (?1 ->> 0, ?2)"
        " ON CONFLICT (name) DO UPDATE SET paused = excluded.paused"
    )
    return [
        ["INSERT INTO localqueue_ops (op, at, verb) VALUES (?, ?, 'pause')", op, now],
        [insert, document([queue]), int(paused)],
    ]
