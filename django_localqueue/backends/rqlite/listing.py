"""The statements of looking: one job, lists by key with a filter, counts, stats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from django_localqueue.backends.arguments import failure_number
from django_localqueue.backends.rqlite.changes import Condition, found_id
from django_localqueue.backends.rqlite.records import (
    PRIORITY_STEP,
    RECORD,
    RecordRow,
    cursor,
    document,
)
from django_localqueue.backends.rqlite.schema import QUEUE
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.transports.statements import Statement
from django_localqueue.types import STATES, JobFilter

#: Rows that one look at a list reads at most; a rare match ends the page early instead.
SCAN = 20_000
_INT64 = 2**63 - 1

_SEARCHED = ("job_id", "task", "err_class", "err_message", "err_place")
_INDEXES = {
    "ready": "INDEXED BY localqueue_ready",
    "delayed": "INDEXED BY localqueue_due",
    "blocked": "NOT INDEXED",
    "processing": "INDEXED BY localqueue_lease",
    "acked": "INDEXED BY localqueue_acked",
    "failed": "INDEXED BY localqueue_failed",
}


def public_id(id: str) -> str | None:
    """Return the JSON array that names a job by its public id, None if no job can have it."""
    try:
        id.encode()
    except UnicodeEncodeError:
        return None
    if "\x00" in id:
        return None
    own = int(id) if len(id) < 20 and id.isascii() and id.isdigit() and str(int(id)) == id else -1
    return document([id, min(own, _INT64)])


class _Where:
    """Collects conditions on a message ``m`` and their values, in the document ``?{number}``."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._parts: list[str] = []
        self._values: list[Any] = []

    def value(self, value: Any) -> str:
        self._values.append(value)
        return f"(?{self._number} ->> {len(self._values) - 1})"

    def add(self, sql: str) -> None:
        self._parts.append(sql)

    def done(self) -> Condition:
        return Condition(" AND ".join(self._parts) or "1", document(self._values))


def named(filter: JobFilter, now: int, number: int = 5, *, as_of: int | None = None) -> Condition:
    """Return what a job must fulfil that was named by its id: its state and all the rest.

    Where the order of the state doesn't tell whether the job was in it at ``as_of``, other
    times do.
    """
    where = _Where(number)
    if filter.state == "ready":  # a due job is ready, promoted or not
        where.add(f"(m.state = 0 OR (m.state = 1 AND m.at <= {where.value(now)}))")
    elif filter.state == "delayed":  # it may have come due since it was seen
        where.add("m.state IN (0, 1)")
    else:
        where.add(f"m.state = {STATES.index(filter.state)}")
    if filter.state in ("acked", "failed"):
        _within(where, filter)
    _alike(where, filter)
    came = {"delayed": "coalesce(m.ended, m.created)", "processing": "m.started"}
    if as_of is not None and filter.state in came:
        where.add(f"{came[filter.state]} <= {where.value(as_of)}")
    return where.done()


def walked(filter: JobFilter, number: int) -> Condition:
    """Return what a job of the filter's state must fulfil."""
    where = _Where(number)
    if filter.state != "processing":
        _within(where, filter)
    _alike(where, filter)
    return where.done()


def _within(where: _Where, filter: JobFilter) -> None:
    time = {"ready": "m.since", "blocked": "m.created"}.get(filter.state, "m.at")
    for sign, bound in ((">=", filter.since), ("<=", filter.until)):
        if bound is not None:
            where.add(f"{time} {sign} {where.value(max(-_INT64, min(_INT64, bound)))}")


def _alike(where: _Where, filter: JobFilter) -> None:
    for column, wanted in (
        ("grp", filter.group_id),
        ("task", filter.task),
        ("reason", filter.reason),
        ("err_class", filter.error_class),
    ):
        if wanted is not None:
            where.add(f"m.{column} = {where.value(_searchable(wanted))}")
    if filter.failure is not None:
        where.add(f"m.failure = {where.value(failure_number(filter.failure))}")
    if filter.min_attempts is not None:
        where.add(f"m.attempts >= {where.value(filter.min_attempts)}")
    if filter.text is not None:
        # SQLite's lower() knows ASCII only: other letters are looked for in both cases.
        text = _searchable(filter.text)
        forms = {_ascii_lower(form) for form in (text, text.lower(), text.upper(), text.title())}
        columns = [f"lower(coalesce(m.{column}, ''))" for column in _SEARCHED] + ["m.id"]
        needles = [where.value(form) for form in sorted(forms)]
        hits = [f"instr({column}, {needle})" for needle in needles for column in columns]
        where.add(f"({' OR '.join(hits)})")


def _ascii_lower(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _searchable(text: str) -> str:
    """Return a text to look for; what no job can hold becomes what none is likely to hold."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


# ---- one job, and jobs by their ids

_LOOKUP = f"SELECT {RECORD} FROM localqueue_messages m WHERE m.id = {found_id(QUEUE, '?2')}"
_HISTORY = f"""SELECT attempt, worker, started, ended, outcome, err_class, err_message, err_place,
    traceback FROM localqueue_history WHERE message = {found_id(QUEUE, "?2")} ORDER BY n"""


def lookup(queue: str, id: str) -> list[Statement]:
    """Read a job by what ``public_id`` returned, and its history."""
    return [[sql, document([queue]), id] for sql in (_LOOKUP, _HISTORY)]


def _by_ids(queue: str, ids: Sequence[str], filter: JobFilter, now: int) -> list[Statement]:
    where = named(filter, now, 3)
    sql = f"""SELECT {RECORD} FROM json_each(?2) named
  CROSS JOIN localqueue_messages m ON m.id = {found_id(QUEUE, "named.value")}
  WHERE {where.sql} ORDER BY named.key"""
    return [[sql, document([queue]), f"[{','.join(ids)}]", where.values]]


# ---- walking the jobs of one state in order

_NEWEST_FIRST = ("at < ?3 OR (at = ?3 AND id < ?4)", "at <= ?3", "at DESC, id DESC")
_OLDEST_FIRST = ("at > ?3 OR (at = ?3 AND id > ?4)", "at >= ?3", "at, id")


def read_page(
    shared: SharedStore,
    queue: str,
    filter: JobFilter,
    after: tuple[int, int] | None,
    limit: int,
) -> tuple[list[RecordRow], tuple[int, int] | None]:
    """Return up to ``limit`` rows behind the cursor ``after``, and where to go on, if anywhere."""
    results = shared.read(_walk(queue, filter, after, limit + 1))
    rows: list[RecordRow] = []
    end = None
    for matching, bound in zip(results[::2], results[1::2], strict=True):
        rows += [RecordRow(*row) for row in matching.rows]
        if bound.rows:
            end = RecordRow(*bound.rows[0])
            break
    if len(rows) > limit:
        rows, end = rows[:limit], rows[limit - 1]
    return rows, None if end is None else cursor(end)


def read_by_ids(shared: SharedStore, queue: str, filter: JobFilter, now: int) -> list[RecordRow]:
    """Return the rows of the ids of a filter that match it, in the order of the ids."""
    ids = [public for id in filter.ids or () if (public := public_id(id)) is not None]
    (found,) = shared.read(_by_ids(queue, ids, filter, now))
    return [RecordRow(*row) for row in found.rows]


def read_count(shared: SharedStore, queue: str, filter: JobFilter, cap: int) -> int:
    """Return how many jobs match, up to ``cap``; of rare ones in a large store, at least."""
    (found,) = shared.read(_count(queue, filter, cap))
    return cast("int", found.rows[0][0])


def _walk(
    queue: str, filter: JobFilter, after: tuple[int, int] | None, limit: int
) -> list[Statement]:
    """Two statements for each leg of the walk: the jobs, and the row where it ends early."""
    where = walked(filter, 5)
    request: list[Statement] = []
    # The first that match are the first of all where everything does.
    for source, low, id in _legs(filter, after, limit if where.sql == "1" else SCAN):
        values = [document([queue]), limit, low, id, where.values]
        # The rows come out in the order of the inner SELECT: there is nothing to sort by again.
        request.append(
            [f"SELECT {RECORD} FROM ({source} LIMIT {SCAN}) m WHERE {where.sql} LIMIT ?2", *values]
        )
        request.append([f"SELECT {RECORD} FROM ({source} LIMIT 1 OFFSET {SCAN - 1}) m", *values])
    return request


def _count(queue: str, filter: JobFilter, cap: int) -> list[Statement]:
    where = walked(filter, 5)
    ((source, low, id),) = _legs(filter, None, None)
    scan = max(cap, 10 * SCAN)
    sql = f"""SELECT count(*) FROM (SELECT 1 FROM ({source} LIMIT {scan}) m
  WHERE {where.sql} LIMIT ?2)"""
    return [[sql, document([queue]), cap, low, id, where.values]]


def _legs(
    filter: JobFilter, after: tuple[int, int] | None, first: int | None
) -> list[tuple[str, int | str | None, int]]:
    """Return the SELECTs that together walk a state in order, each with where it starts.

    ``first`` is how many rows are wanted where they must be sorted; None: all, in any order.
    """
    state = filter.state
    head = (
        f"SELECT * FROM localqueue_messages {_INDEXES[state]}"
        f" WHERE queue = {QUEUE} AND state = {STATES.index(state)}"
    )
    if state == "ready":
        below = f"{head} AND prio < ?3 AND ?4 IS NOT NULL ORDER BY prio DESC, since, id"
        if after is None:
            return [(below, 101, 0)]
        low, id = after
        priority, since = 100 - low // PRIORITY_STEP, low % PRIORITY_STEP
        same = (
            f"{head} AND prio = {priority} AND since >= ?3 AND (since > ?3 OR id > ?4)"
            " ORDER BY since, id"
        )
        return [(same, since, id), (below, priority, 0)]
    if state == "blocked":
        id = after[1] if after else -1
        head = head.replace("NOT INDEXED", "INDEXED BY localqueue_blocked")
        if filter.group_id is None:
            if first is None:
                return [(f"{head} AND id > ?4 AND ?3 IS NULL", None, id)]
            # By key over the whole table it would pass all finished jobs; the index has only the
            # blocked ones, by group, and the first of them by key are found in one pass over it.
            ids = f"{head.replace('*', 'id AS found')} AND id > ?4 ORDER BY id LIMIT {first}"
            rows = f"({ids}) CROSS JOIN localqueue_messages ON id = found"
            return [(f"SELECT * FROM {rows} WHERE ?3 IS NULL", None, id)]
        group = document([_searchable(filter.group_id)])
        return [(f"{head} AND grp = ?3 ->> 0 AND id > ?4 ORDER BY id", group, id)]
    newest_first = state in ("acked", "failed")
    if state == "failed" and filter.failure is not None:
        number = failure_number(filter.failure)
        head = (
            "SELECT * FROM localqueue_messages INDEXED BY localqueue_failure"
            f" WHERE failure = {number} AND failure IS NOT NULL AND queue = {QUEUE}"
        )
    beyond, reach, order = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    low, id = after or ((_INT64, _INT64) if newest_first else (-1, -1))
    if newest_first and filter.until is not None and filter.until < low:
        low, id = max(filter.until, -_INT64), _INT64  # what is later needn't be read
    sql = f"{head} AND {reach} AND ({beyond})"
    for sign, bound in ((">=", filter.since), ("<=", filter.until)):
        if bound is not None and state != "processing":
            sql += f" AND at {sign} {max(-_INT64, min(_INT64, int(bound)))}"
    return [(f"{sql} ORDER BY {order}", low, id)]


def list_failed(queue: str, limit: int, offset: int) -> list[Statement]:
    """Read dead letters, newest first."""
    sql = f"""SELECT {RECORD} FROM localqueue_messages m INDEXED BY localqueue_failed
  WHERE queue = {QUEUE} AND state = 5 ORDER BY at DESC, id DESC LIMIT ?2 OFFSET ?3"""
    return [[sql, document([queue]), limit, offset]]


# ---- counting


class Counts(NamedTuple):
    """The row that ``stats`` reads."""

    ready: int
    delayed: int
    blocked: int
    processing: int
    acked: int
    failed: int
    due: int
    expired: int
    paused: int
    oldest: int | None
    oldest_due: int | None


_HEAD = """SELECT prio FROM localqueue_messages INDEXED BY localqueue_ready
      WHERE queue = q.id AND state = 0"""


def _counted(state: int, extra: str = "") -> str:
    index = list(_INDEXES.values())[state].replace("NOT INDEXED", "INDEXED BY localqueue_blocked")
    return (
        f"(SELECT count(*) FROM localqueue_messages {index}"
        f" WHERE queue = q.id AND state = {state}{extra})"
    )


# One statement, so one snapshot.
_STATS = f"""SELECT {", ".join(_counted(state) for state in range(6))},
    {_counted(1, " AND at <= ?2")}, {_counted(3, " AND at <= ?3")}, q.paused,
    (WITH RECURSIVE head (prio) AS (
      SELECT ({_HEAD} ORDER BY prio DESC LIMIT 1)
      UNION ALL SELECT ({_HEAD} AND prio < head.prio ORDER BY prio DESC LIMIT 1)
        FROM head WHERE head.prio IS NOT NULL)
    SELECT min((SELECT since FROM localqueue_messages INDEXED BY localqueue_ready
      WHERE queue = q.id AND state = 0 AND prio = head.prio ORDER BY since LIMIT 1)) FROM head),
    (SELECT at FROM localqueue_messages INDEXED BY localqueue_due
      WHERE queue = q.id AND state = 1 AND at <= ?2 ORDER BY at LIMIT 1)
  FROM localqueue_queues q WHERE q.name = ?1 ->> 0"""


def stats(queue: str, now: int, boot: int) -> list[Statement]:
    """Count the jobs of each state, those due and lapsed, paused, and the oldest waits."""
    return [[_STATS, document([queue]), now, boot]]
