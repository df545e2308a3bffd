"""The tables of the queues in rqlite.

What keeps their rules stands in ``procedures``; ``creation`` makes both.
"""

from __future__ import annotations

#: A change of the schema raises it; what it adds to tables of version 1 stands in ``ADDED``.
VERSION = 2
#: Ended attempts that are kept of a job; the oldest go first.
HISTORY = 25
#: Microseconds of the slots in which failures are counted, and of a minute.
SLOT, MINUTE = 300_000_000, 60_000_000
#: For how long the outcome of an operation is remembered, so that a late copy of it does nothing.
REMEMBERED = 900_000_000

READY, DELAYED, BLOCKED, PROCESSING, ACKED, FAILED = range(6)
ACK, NACK, FAIL, RELEASE, LAPSE = range(1, 6)
VERBS = {"ack": ACK, "nack": NACK, "fail": FAIL, "release": RELEASE}

#: The highest id ever given; that of a job that was purged is remembered.
LAST_ID = """max(coalesce((SELECT max(id) FROM localqueue_messages),0),\
(SELECT value FROM localqueue_meta WHERE name='last_id'))"""

#: The key of the queue whose name is in the document ?1.
QUEUE = "(SELECT id FROM localqueue_queues WHERE name = ?1 ->> 0)"

# ``at`` is the due time, lease end or finish time by state, and a waiting job's own time
# otherwise; ``since`` orders claims. Each index but the last two holds one state only, so that
# a claim reads its head and nothing else. Text is TEXT, bytes as ``records.stored`` has them.
# rqlite prepares every statement anew, triggers included: so those on ``messages`` hang on
# columns that puts and claims leave alone. ``ended`` is when the last delivery or wait ended,
# ``waited`` the ``since`` with which the job was last claimed.
TABLES = {
    "localqueue_meta": """(
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID""",
    "localqueue_queues": """(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  paused INTEGER NOT NULL DEFAULT 0
)""",
    "localqueue_messages": """(
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  state INTEGER NOT NULL,
  prio INTEGER NOT NULL,
  since INTEGER NOT NULL,
  at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  receipt TEXT,
  verb INTEGER,
  prev_receipt TEXT,
  prev_verb INTEGER,
  max_retries INTEGER,
  cancel INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL,
  started INTEGER,
  waited INTEGER,
  ended INTEGER,
  grp TEXT,
  job_id TEXT,
  task TEXT,
  worker TEXT,
  reason TEXT,
  err_class TEXT,
  err_message TEXT,
  err_place TEXT,
  headers TEXT,
  result TEXT,
  payload TEXT NOT NULL
)""",
    "localqueue_history": """(
  message INTEGER NOT NULL,
  n INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  worker TEXT NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  err_class TEXT,
  err_message TEXT,
  err_place TEXT,
  traceback TEXT,
  PRIMARY KEY (message, n)
) WITHOUT ROWID""",
    # Dead letters by what went wrong, and how many failed in each five minutes.
    "localqueue_failures": """(
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  err_class TEXT NOT NULL,
  place TEXT NOT NULL,
  task TEXT NOT NULL,
  total INTEGER NOT NULL,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  UNIQUE (queue, err_class, place, task)
)""",
    "localqueue_failure_counts": """(
  failure INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (failure, slot)
) WITHOUT ROWID""",
    # What was done by the minute. A failure is counted when it happens, acked jobs afterwards:
    # ``rolled`` of a queue is the finish time from which on they aren't counted yet.
    "localqueue_activity": """(
  queue INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  acked INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, minute)
) WITHOUT ROWID""",
    # Operations that were applied: ids begin with their time, so the oldest come first.
    "localqueue_ops": """(
  op TEXT PRIMARY KEY,
  at INTEGER NOT NULL,
  verb TEXT NOT NULL,
  answer TEXT,
  found INTEGER
) WITHOUT ROWID""",
    # What workers share, from version 2 on. ``until`` and the ``next`` of a rate are times of
    # the clock of leases, ``holder`` an operation's id.
    "localqueue_workers": """(
  name TEXT PRIMARY KEY,
  seen INTEGER NOT NULL,
  command TEXT,
  record TEXT NOT NULL
) WITHOUT ROWID""",
    "localqueue_duties": """(
  name TEXT PRIMARY KEY,
  until INTEGER NOT NULL,
  holder TEXT NOT NULL
) WITHOUT ROWID""",
    "localqueue_rates": """(
  queue INTEGER PRIMARY KEY,
  next INTEGER NOT NULL
)""",
    "localqueue_schedules": """(
  name TEXT PRIMARY KEY,
  queue TEXT NOT NULL,
  next INTEGER NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0,
  last INTEGER,
  last_id TEXT,
  seen INTEGER NOT NULL,
  timing TEXT NOT NULL,
  record TEXT NOT NULL
) WITHOUT ROWID""",
    "localqueue_once": """(
  queue INTEGER NOT NULL,
  job_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (queue, job_id)
) WITHOUT ROWID""",
}

# Columns that came after version 1, by table: version, definition. Views and triggers are made
# anew by whoever first uses a newer version.
ADDED: dict[str, dict[str, tuple[int, str]]] = {
    "localqueue_queues": {"rolled": (2, "INTEGER NOT NULL DEFAULT 0")},
    # A unique key holds while ``unique_until`` is not NULL: it is until when the key holds
    # though the job has finished.
    "localqueue_messages": {
        "failure": (2, "INTEGER"),
        "expires": (2, "INTEGER"),
        "unique_key": (2, "TEXT"),
        "unique_until": (2, "INTEGER"),
        "retention": (2, "INTEGER"),
        "progress": (2, "TEXT"),
        "original": (2, "TEXT"),
    },
}

INDEXES = {
    "localqueue_ready": "(queue, prio DESC, since) WHERE state = 0",
    "localqueue_due": "(queue, at) WHERE state = 1",
    "localqueue_blocked": "(queue, grp, id) WHERE state = 2",
    "localqueue_lease": "(queue, at) WHERE state = 3",
    "localqueue_acked": "(queue, at) WHERE state = 4",
    "localqueue_failed": "(queue, at) WHERE state = 5",
    "localqueue_failure": "(failure, at) WHERE failure IS NOT NULL",
    "localqueue_discarded": "(queue, at) WHERE reason = 'discarded'",
    "localqueue_head": "(queue, grp) WHERE grp IS NOT NULL AND state IN (0, 1, 3)",
    "localqueue_job_id": "(queue, job_id) WHERE job_id IS NOT NULL",
    "localqueue_unique": "(queue, unique_key) WHERE unique_until IS NOT NULL",
    "localqueue_kept": "(queue, at + retention) WHERE state = 4 AND retention IS NOT NULL",
}
UNIQUE = ("localqueue_head", "localqueue_job_id", "localqueue_unique")


def body(table: str) -> str:
    """Return the columns of a table as this version has them."""
    late = "".join(
        f"  {column} {definition},\n" for column, (_, definition) in ADDED.get(table, {}).items()
    )
    return TABLES[table].replace("(\n", f"(\n{late}", 1)


def columns(table: str) -> set[str]:
    """Return the names of the columns of a table."""
    lines = (line.strip() for line in body(table).splitlines()[1:-1])
    return {line.split()[0] for line in lines if not line.startswith(("PRIMARY KEY", "UNIQUE"))}
