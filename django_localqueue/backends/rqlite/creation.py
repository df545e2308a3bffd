"""Making the tables and procedures where they are missing, and bringing older ones up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.procedures import BODIES, TRIGGERS, VIEWS
from django_localqueue.exceptions import ForeignDatabase, LocalQueueError, NewerSchema
from django_localqueue.transports.cluster import Cluster, Steps
from django_localqueue.transports.statements import Statement

# What version 2 counts of the dead letters that version 1 left.
_OLD_ERRORS = "state = 5 AND reason NOT IN ('cancelled', 'discarded')"
_FILLS = (
    f"""INSERT INTO localqueue_failures
    (queue, err_class, place, task, total, first_at, last_at)
  SELECT queue, coalesce(err_class, ''), coalesce(err_place, ''), coalesce(task, ''), count(*),
    min(at), max(at) FROM localqueue_messages WHERE {_OLD_ERRORS} GROUP BY 1, 2, 3, 4""",
    f"""UPDATE localqueue_messages SET failure = (SELECT f.id FROM localqueue_failures f
    WHERE f.queue = localqueue_messages.queue
      AND f.err_class = coalesce(localqueue_messages.err_class, '')
      AND f.place = coalesce(localqueue_messages.err_place, '')
      AND f.task = coalesce(localqueue_messages.task, ''))
  WHERE {_OLD_ERRORS}""",
    f"""INSERT INTO localqueue_failure_counts SELECT failure, at / {schema.SLOT}, count(*)
  FROM localqueue_messages WHERE failure IS NOT NULL GROUP BY 1, 2""",
    f"""INSERT INTO localqueue_activity (queue, minute, failed)
  SELECT queue, at / {schema.MINUTE}, count(*) FROM localqueue_messages
  WHERE failure IS NOT NULL GROUP BY 1, 2""",
)


def creation(missing: Mapping[str, set[str]] | None = None) -> list[Statement]:
    """Return the statements that make the tables, or bring older ones up to this version.

    ``missing`` has the columns that existing tables lack. Without any the statements may be
    applied once or more often; the second of two that add a column is refused whole.
    """
    statements = [
        f"ALTER TABLE {table} ADD COLUMN {column} {schema.ADDED[table][column][1]}"
        for table, lacking in (missing or {}).items()
        for column in sorted(lacking)
    ]
    statements += [
        f"CREATE TABLE IF NOT EXISTS {name} {schema.body(name)}" for name in schema.TABLES
    ]
    statements += [
        f"CREATE {'UNIQUE ' if name in schema.UNIQUE else ''}INDEX IF NOT EXISTS {name}"
        f" ON localqueue_messages {body}"
        for name, body in schema.INDEXES.items()
    ]
    statements += [f"DROP TRIGGER IF EXISTS {name}" for name in TRIGGERS]
    for name, fields_of in VIEWS.items():
        fields = ", ".join(f"NULL AS {field}" for field in fields_of)
        body = BODIES.get(name, f"SELECT {fields}")
        statements += [f"DROP VIEW IF EXISTS {name}", f"CREATE VIEW {name} AS {body}"]
    statements += [
        f"CREATE TRIGGER {name} {when} BEGIN\n  " + ";\n  ".join(steps) + ";\nEND"
        for name, (when, steps) in TRIGGERS.items()
    ]
    return [
        *([sql] for sql in statements),
        ["INSERT OR IGNORE INTO localqueue_meta VALUES ('last_id', 0)"],
        *([sql] for sql in (_FILLS if missing else ())),
        [
            "INSERT INTO localqueue_meta VALUES ('schema', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            schema.VERSION,
        ],
    ]


def prepare(cluster: Cluster) -> Steps[None]:
    """Create the tables where they are missing, and bring older ones up to this version.

    Raises ``ForeignDatabase`` where other tables have their names, ``NewerSchema`` where a
    newer version of this package made them.
    """
    if (yield from _missing(cluster, "weak")) is None:
        return
    # A node that has just started may not have replayed its log: the leader's word counts.
    missing = yield from _missing(cluster, "strong")
    if missing is None:
        return
    try:
        yield from cluster.execute(creation(missing), repeatable=True)
    except LocalQueueError:
        # Somebody else may have added the columns first, or an earlier copy of this request.
        if not missing or (yield from _missing(cluster, "strong")) is not None:
            raise


def _missing(
    cluster: Cluster, level: Literal["weak", "strong"], *, again: bool = True
) -> Steps[dict[str, set[str]] | None]:
    """Return the columns that the tables lack; None where all is there and up to date."""
    names = "', '".join([*schema.TABLES, *VIEWS])
    (rows,) = yield from cluster.query(
        [
            [
                "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p"
                f" WHERE m.name IN ('{names}') ORDER BY m.name, p.cid"
            ]
        ],
        level=level,
    )
    found: dict[str, set[str]] = {}
    for name, column in rows.rows:
        found.setdefault(name, set()).add(column)
    expected = {name: schema.columns(name) for name in schema.TABLES}
    expected |= {name: set(fields) for name, fields in VIEWS.items()}
    version = schema.VERSION
    if found.get("localqueue_meta") == expected["localqueue_meta"]:
        (row,) = yield from cluster.query(
            [["SELECT value FROM localqueue_meta WHERE name = 'schema'"]], level=level
        )
        version = row.rows[0][0] if row.rows else schema.VERSION
        if version > schema.VERSION:
            raise NewerSchema(
                f"The queue's tables in rqlite have the schema {version}, and this"
                f" version of django-localqueue knows {schema.VERSION}: upgrade it here too."
            )
    missing: dict[str, set[str]] = {}
    for name, has in found.items():
        lacks = expected[name] - has
        late = {
            column for column, (since, _) in schema.ADDED.get(name, {}).items() if since > version
        }
        is_old = version < schema.VERSION and (name in VIEWS or lacks <= late)
        if not has <= expected[name] or (lacks and not is_old):
            if again:  # they may have been brought up to date between the two queries
                return (yield from _missing(cluster, level, again=False))
            raise ForeignDatabase(
                f"The rqlite database has another {name!r} than this queue's. Rename it, or use a"
                " cluster of its own for the queue."
            )
        if lacks and name in schema.TABLES:
            missing[name] = lacks
    if found.keys() == expected.keys() and version == schema.VERSION:
        return None
    return missing
