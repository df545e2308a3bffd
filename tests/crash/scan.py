"""What must hold in the file itself at any moment, asked of SQLite and not of the engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

READY = "0, 1, 2"
COUNTS = {"ready": READY, "processing": "3", "acked": "4", "failed": "5"}

#: What is wrong, and a query that finds it.
RULES = {
    "a group has two leads": """
        SELECT queue, grp, count(*) FROM messages
        WHERE grp IS NOT NULL AND state IN (0, 1, 3) GROUP BY queue, grp HAVING count(*) > 1""",
    "a group waits for ever: it has no lead": """
        SELECT queue, grp, count(*) FROM messages WHERE state IN (0, 1, 2, 3) AND grp IS NOT NULL
        GROUP BY queue, grp HAVING sum(state IN (0, 1, 3)) = 0""",
    "a job waits for a group that it isn't in": """
        SELECT id, state FROM messages WHERE state = 2 AND grp IS NULL""",
    "an unclaimed lead is not the oldest of its group": """
        SELECT lead.id, min(other.id) FROM messages AS lead JOIN messages AS other
          ON other.queue = lead.queue AND other.grp = lead.grp AND other.state = 2
        WHERE lead.state IN (0, 1) GROUP BY lead.id HAVING min(other.id) < lead.id""",
    "a receipt stands on two rows": """
        SELECT receipt, count(*) FROM (
          SELECT receipt FROM messages WHERE receipt IS NOT NULL
          UNION ALL SELECT prev_receipt FROM messages WHERE prev_receipt IS NOT NULL)
        GROUP BY receipt HAVING count(*) > 1""",
    "a job is in no known state": """
        SELECT id, state FROM messages WHERE state NOT IN (0, 1, 2, 3, 4, 5)""",
    "a running job has no receipt": """
        SELECT id, receipt, verb FROM messages
        WHERE state = 3 AND (receipt IS NULL OR verb IS NOT NULL OR started IS NULL)""",
    "a job that waits counts too few deliveries": """
        SELECT id, attempts FROM messages WHERE attempts < 0""",
    "a dead letter has no reason": """
        SELECT id, reason FROM messages WHERE (state = 5) != (reason IS NOT NULL)""",
    "history of a job that is gone": """
        SELECT DISTINCT message FROM history WHERE message NOT IN (SELECT id FROM messages)""",
    "a group of failures counts other jobs than it has": """
        SELECT failures.id, total, count(messages.id) FROM failures
        LEFT JOIN messages ON messages.failure = failures.id
        GROUP BY failures.id HAVING total != count(messages.id)""",
    "a job is in a group of failures that isn't there, or has not failed": """
        SELECT id, state, failure FROM messages WHERE failure IS NOT NULL
        AND (state != 5 OR failure NOT IN (SELECT id FROM failures))""",
    "counts of a group of failures that is gone": """
        SELECT DISTINCT failure FROM failure_counts
        WHERE failure NOT IN (SELECT id FROM failures)""",
    "a unique key holds for a job that never had one": """
        SELECT id FROM messages WHERE unique_until IS NOT NULL AND unique_key IS NULL""",
    "a history is too long": """
        SELECT message, count(*) FROM history GROUP BY message HAVING count(*) > 25""",
    "a queue is there without its name": """
        SELECT DISTINCT queue FROM messages WHERE queue NOT IN (SELECT id FROM queues)""",
}


def faults(file: Path) -> Iterator[str]:
    """Yield what is wrong with the file. No process may have it open by another SQLite."""
    with closing(sqlite3.connect(file)) as database:
        try:
            for (text,) in database.execute("PRAGMA integrity_check").fetchall():
                if text != "ok":
                    yield f"integrity_check: {text}"
            for what, query in RULES.items():
                found = database.execute(query).fetchmany(5)
                if found:
                    yield f"{what}: {found}"
        except sqlite3.DatabaseError as error:  # too broken to be read
            yield f"integrity_check: {error}"


def counts(file: Path) -> dict[str, dict[str, int]]:
    """Return how many jobs of each queue are in each state, by its name."""
    sums = ", ".join(f"sum(state IN ({states}))" for states in COUNTS.values())
    query = f"SELECT name, {sums} FROM messages JOIN queues ON queues.id = queue GROUP BY name"
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute(query).fetchall()
    return {name: dict(zip(COUNTS, numbers, strict=True)) for name, *numbers in rows}
