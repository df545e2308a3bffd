"""The seed's queue on rqlite: its two tables, its statements, its rules; without I/O.

``messages`` and ``groups`` are the seed's, so that its clients and these may work on the same
rows in turn. What makes a write safe to send again stands beside them: a column that the
seed's statements do not name, and a table of outcomes, which remembers for a day which
receipts were settled and which messages were published and are gone.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from django_localqueue.exceptions import (
    ForeignDatabase,
    InvalidInput,
    LeaseExpired,
    LocalQueueError,
    NotStored,
    OutcomeUnknown,
)
from django_localqueue.transports.clock import LeaderClock
from django_localqueue.transports.cluster import Cluster, Steps
from django_localqueue.transports.statements import Statement, check_text, text

PARKED = "__parked__"
MAX_PRIORITY = 4
OUTCOME_SECONDS = 86_400.0
_MAX_SECONDS = 10.0 * 365 * 86_400

_COLUMNS = {
    "messages": {"seq", "group_id", "event", "locked_by", "lock_expiry"},
    "groups": {"group_id", "last_claimed_at", "priority"},
    "localqueue_outcomes": {"id", "verb", "at"},
}

_TABLES = {
    "messages": """CREATE TABLE IF NOT EXISTS messages (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  group_id     TEXT NOT NULL,
  event        TEXT NOT NULL,
  locked_by    TEXT,
  lock_expiry  REAL)""",
    "groups": """CREATE TABLE IF NOT EXISTS groups (
  group_id        TEXT PRIMARY KEY,
  last_claimed_at REAL NOT NULL DEFAULT 0.0,
  priority        INT  NOT NULL DEFAULT 0)""",
    "localqueue_outcomes": """CREATE TABLE IF NOT EXISTS localqueue_outcomes (
  id   TEXT PRIMARY KEY,
  verb TEXT NOT NULL,
  at   REAL NOT NULL) WITHOUT ROWID""",
}
_ADD_COLUMN = "ALTER TABLE messages ADD COLUMN publish_id TEXT"
_PARTS = {
    "messages_publish_id": "CREATE UNIQUE INDEX IF NOT EXISTS messages_publish_id"
    " ON messages (publish_id) WHERE publish_id IS NOT NULL",
    "messages_locked_by": "CREATE INDEX IF NOT EXISTS messages_locked_by"
    " ON messages (locked_by) WHERE locked_by IS NOT NULL",
    "messages_group_id": "CREATE INDEX IF NOT EXISTS messages_group_id ON messages (group_id)",
    "localqueue_outcomes_at": "CREATE INDEX IF NOT EXISTS localqueue_outcomes_at"
    " ON localqueue_outcomes (at)",
    # A message that is gone must not be published again by a late copy of the request, also if
    # a client of the seed removed it. The time is the row's own: replicas have to agree on it.
    "messages_gone": "CREATE TRIGGER IF NOT EXISTS messages_gone AFTER DELETE ON messages"
    " WHEN OLD.publish_id IS NOT NULL BEGIN"
    " INSERT OR IGNORE INTO localqueue_outcomes (id, verb, at)"
    " VALUES (OLD.publish_id, 'publish', coalesce(OLD.lock_expiry, 0.0)); END",
}

_CLAIM = """UPDATE messages SET locked_by = ?1, lock_expiry = ?2
 WHERE NOT EXISTS (SELECT 1 FROM messages WHERE locked_by = ?1)
   AND NOT EXISTS (SELECT 1 FROM localqueue_outcomes WHERE id = ?1)
   AND seq = (
    SELECT m.seq FROM messages m JOIN groups g ON g.group_id = m.group_id
    WHERE (m.locked_by IS NULL OR m.lock_expiry < ?3)
      AND m.group_id NOT IN (
        SELECT group_id FROM messages WHERE locked_by IS NOT NULL AND lock_expiry >= ?3)
      AND g.priority >= ?4
    ORDER BY g.last_claimed_at ASC, m.seq ASC LIMIT 1)"""
_CLAIMED = "SELECT seq, group_id, event FROM messages WHERE locked_by = ?"
_SERVED = (
    "UPDATE groups SET last_claimed_at = ?"
    " WHERE group_id = (SELECT group_id FROM messages WHERE locked_by = ?)"
)
_SETTLED = (
    "INSERT OR IGNORE INTO localqueue_outcomes (id, verb, at)"
    " SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM messages WHERE seq = ?4 AND locked_by = ?1)"
)
_ACK = "DELETE FROM messages WHERE seq = ? AND locked_by = ?"
_NACK = "UPDATE messages SET locked_by = ?, lock_expiry = ? WHERE seq = ? AND locked_by = ?"
_EXTEND = "UPDATE messages SET lock_expiry = max(lock_expiry, ?) WHERE seq = ? AND locked_by = ?"
_FORGET = (
    "DELETE FROM localqueue_outcomes WHERE id IN"
    " (SELECT id FROM localqueue_outcomes WHERE at < ? ORDER BY at, id LIMIT 4)"
)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one message until its deadline; ``token`` is its receipt."""

    seq: int
    group_id: str
    event: str
    token: str = field(repr=False)


class Messages:
    """The verbs of the seed as conversations; see ``RqliteTransport`` for what each does.

    ``make_id`` returns a new unique id each time.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: LeaderClock,
        make_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._make_id = make_id

    def prepare(self, total: float) -> Steps[None]:
        """Wait up to ``total`` seconds for a leader, then create what is missing of the tables."""
        missing = yield from self._missing(total)
        if not missing:
            return
        try:
            yield from self._cluster.execute(missing, repeatable=True, total=total)
        except LocalQueueError:
            # Another client may have added the column first, or an earlier copy of this request.
            if (yield from self._missing(total)):
                raise

    def publish(
        self, group_id: str, event: str, priority: int, publish_id: str | None
    ) -> Steps[None]:
        _check_name(group_id, "group_id")
        check_text(event, "event")
        _check_priority(priority, "priority")
        own_id = self._make_id() if publish_id is None else _check_name(publish_id, "publish_id")
        group, group_parameters = text(group_id)
        body, body_parameters = text(event)
        mark, mark_parameters = text(own_id)
        insert = (
            f"INSERT INTO messages (group_id, event, publish_id) SELECT {group}, {body}, {mark}"
            f" WHERE NOT EXISTS (SELECT 1 FROM messages WHERE publish_id = {mark})"
            f" AND NOT EXISTS (SELECT 1 FROM localqueue_outcomes WHERE id = {mark})"
        )
        # No group row without a message: a late copy finds both gone and leaves nothing behind.
        register = (
            f"INSERT OR IGNORE INTO groups (group_id, priority) SELECT {group}, ?"
            f" WHERE EXISTS (SELECT 1 FROM messages WHERE group_id = {group})"
        )
        yield from self._cluster.execute(
            [
                [insert, *group_parameters, *body_parameters, *(mark_parameters * 3)],
                [register, *group_parameters, priority, *group_parameters],
            ],
            repeatable=True,
        )

    def claim(self, worker_id: str, visibility: float, min_priority: int) -> Steps[Lease | None]:
        _check_name(worker_id, "worker_id")
        _check_seconds(visibility, "visibility", above_zero=True)
        _check_priority(min_priority, "min_priority")
        token = f"{worker_id}:{self._make_id()}"
        now = yield from self._now()
        results = yield from self._cluster.request(
            [
                [_CLAIM, token, now + visibility, now, min_priority],
                [_CLAIMED, token],
                [_SERVED, now, token],
            ],
            repeatable=True,
        )
        # Not the number of rows changed: a copy of the request may have claimed it before.
        for seq, group_id, event in results[1].rows:
            return Lease(seq, group_id, event, token)
        return None

    def ack(self, lease: Lease) -> Steps[None]:
        group, group_parameters = text(lease.group_id)
        drop_group = (
            f"DELETE FROM groups WHERE group_id = {group}"
            f" AND NOT EXISTS (SELECT 1 FROM messages WHERE group_id = {group})"
        )
        yield from self._settle(
            lease,
            "ack",
            (yield from self._now()),
            [_ACK, lease.seq, lease.token],
            [drop_group, *group_parameters, *group_parameters],
        )

    def nack(self, lease: Lease, delay: float) -> Steps[None]:
        _check_seconds(delay, "delay")
        now = yield from self._now()
        locked_by, until = (PARKED, now + delay) if delay > 0 else (None, 0)
        yield from self._settle(
            lease, "nack", now, [_NACK, locked_by, until, lease.seq, lease.token]
        )

    def extend(self, lease: Lease, seconds: float) -> Steps[None]:
        _check_seconds(seconds, "seconds", above_zero=True)
        now = yield from self._now()
        results = yield from self._cluster.execute(
            [[_EXTEND, now + seconds, lease.seq, lease.token]], repeatable=True
        )
        if not results[0].rows_affected:
            yield from self._explain(lease, "extend")

    def _settle(self, lease: Lease, verb: str, now: float, *statements: Statement) -> Steps[None]:
        """Apply ``statements``, the first of which changes a row if the lease is live."""
        results = yield from self._cluster.execute(
            [
                [_SETTLED, lease.token, verb, now, lease.seq],
                *statements,
                [_FORGET, now - OUTCOME_SECONDS],
            ],
            repeatable=True,
        )
        if not results[1].rows_affected:
            yield from self._explain(lease, verb)

    def _explain(self, lease: Lease, verb: str) -> Steps[None]:
        """Return if an earlier copy of ``verb`` settled this lease, else raise why it is lost."""
        try:
            outcome, row = yield from self._cluster.query(
                [
                    ["SELECT verb FROM localqueue_outcomes WHERE id = ?", lease.token],
                    ["SELECT 1 FROM messages WHERE seq = ?", lease.seq],
                ]
            )
        except NotStored as error:
            # The write was sent: that this read fails doesn't say that it did not happen.
            raise OutcomeUnknown(
                f"Whether {verb} of message {lease.seq} was applied by an earlier sending can't be"
                f" known; send it again. {error}"
            ) from error
        if outcome.rows:
            settled_by = outcome.rows[0][0]
            if settled_by == verb:
                return
            raise LeaseExpired(
                f"Message {lease.seq} was settled before, by {settled_by} with this lease.",
                "settled",
            )
        if row.rows:
            raise LeaseExpired(
                f"The lease of message {lease.seq} lapsed, and the message went to another.",
                "expired",
            )
        raise LeaseExpired(
            f"Message {lease.seq} is gone: its lease lapsed, or another client removed it.",
            "unknown",
        )

    def _now(self) -> Steps[float]:
        return (yield from self._clock.now()) / 1_000_000

    def _missing(self, total: float) -> Steps[list[Statement]]:
        """Return the statements that create what is missing, as soon as there is a leader."""
        names = "', '".join([*_TABLES, *_PARTS])
        objects, columns = yield from self._cluster.query(
            [
                [f"SELECT name, type FROM sqlite_master WHERE name IN ('{names}')"],
                [
                    "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p"
                    f" WHERE m.type = 'table' AND m.name IN ('{names}')"
                ],
            ],
            total=total,
        )
        found = {(name, kind) for name, kind in objects.rows}
        present = {name for name, _ in objects.rows}
        for table, expected in _COLUMNS.items():
            has = {column for name, column in columns.rows if name == table}
            if table in present and ((table, "table") not in found or not expected <= has):
                lacking = ", ".join(sorted(expected - has))
                raise ForeignDatabase(
                    f"The rqlite database has another {table!r} than this queue's: it lacks the"
                    f" columns {lacking}. Use a cluster of its own for the queue."
                )
        missing: list[Statement] = [[sql] for name, sql in _TABLES.items() if name not in present]
        if ("messages", "publish_id") not in set(columns.rows):
            missing.append([_ADD_COLUMN])
        missing += [[sql] for name, sql in _PARTS.items() if name not in present]
        return missing


def _check_name(value: str, name: str) -> str:
    if not check_text(value, name):
        raise InvalidInput(f"{name} is empty.")
    return value


def _check_priority(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PRIORITY:
        raise InvalidInput(f"{name} must be an integer from 0 to {MAX_PRIORITY}.")


def _check_seconds(value: float, name: str, above_zero: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise InvalidInput(f"{name} must be a number of seconds.")
    if not 0 <= value <= _MAX_SECONDS or (above_zero and value == 0):
        least = "more than 0" if above_zero else "at least 0"
        raise InvalidInput(f"{name} must be {least} and at most ten years, in seconds.")
