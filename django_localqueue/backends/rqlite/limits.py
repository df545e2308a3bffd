"""Claims of queues that have limits: so many jobs at a time, and so many in a time.

What runs is counted in the index of leases. The rate is one time for each queue that has one:
when its next delivery is due, were they evenly spread. A source is then name, lease,
max_retries, max_running or null, microseconds between two deliveries or 0, how many at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_localqueue.backends.rqlite import statements
from django_localqueue.backends.rqlite.records import document
from django_localqueue.transports.statements import Statement

_UNBOUNDED = 1_000_000_000

_STEP = "(source.value ->> 4)"
_AHEAD = f"(((source.value ->> 5) - 1) * {_STEP})"


def _next(boot: str) -> str:
    return f"""max({boot}, coalesce((SELECT r.next FROM localqueue_rates r
      WHERE r.queue = q.id), 0))"""


def _allowed(boot: str) -> str:
    """SQL for how many jobs of a queue ``q`` may be claimed now."""
    running = """(SELECT count(*) FROM localqueue_messages held INDEXED BY localqueue_lease
      WHERE held.queue = q.id AND held.state = 3)"""
    by_rate = f"""iif({_next(boot)} - {_AHEAD} > {boot}, 0,
      ({boot} + {_AHEAD} - {_next(boot)}) / {_STEP} + 1)"""
    return f"""min(iif(source.value ->> 3 IS NULL, {_UNBOUNDED}, (source.value ->> 3) - {running}),
    iif({_STEP} > 0, {by_rate}, {_UNBOUNDED}))"""


#: In place of ``statements.CLAIM``.
CLAIM = statements.CLAIM.replace(
    "SELECT m.id AS job,", f"SELECT m.id AS job, {_allowed('?2')} AS allowed,"
).replace("\n    ORDER BY iif(?8", "\n    WHERE turn <= allowed\n    ORDER BY iif(?8")

_NOTE = f"""INSERT INTO localqueue_rates (queue, next)
  SELECT q.id, {_next("?2")} + {_STEP} * count(*) FROM {statements.OURS}
  WHERE {_STEP} > 0 GROUP BY q.id
  ON CONFLICT (queue) DO UPDATE SET next = excluded.next"""

_OUTLOOK = (
    statements.OUTLOOK.replace("prio >= ?2),", f"prio >= ?2) AND {_allowed('?3')} > 0,", 1)
    + f"""
UNION ALL SELECT 0, NULL, {_next("?3")} - {_AHEAD}
  FROM json_each(?1) source CROSS JOIN localqueue_queues q ON q.name = source.value ->> 0
  WHERE {_STEP} > 0 AND {_next("?3")} - {_AHEAD} > ?3"""
)


def note(token: str, boot: int, sources: Sequence[statements.Source]) -> Statement:
    """Note what a claim took that came before in the same request."""
    return [_NOTE, document(sources), boot, token]


def outlook(sources: Sequence[statements.Source], floor: int, boot: int) -> list[Statement]:
    """As ``statements.outlook``; a row more for each queue whose rate allows none yet."""
    return [[_OUTLOOK, document(sources), floor, boot]]
