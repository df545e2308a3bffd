"""Backups and checks of the cluster's database."""

from __future__ import annotations

import contextlib
import os

from django_localqueue.exceptions import InvalidInput, NotStored, StoreUnavailable
from django_localqueue.transports.client import RqliteClient
from django_localqueue.transports.statements import Statement

_NAMED = 10
_JOBS = "SELECT id FROM localqueue_messages AS job WHERE"
#: What is wrong with a job, and a query that finds its key.
_RULES = {
    "is in no known state": f"{_JOBS} state NOT IN (0, 1, 2, 3, 4, 5)",
    "belongs to a queue that has no name": (
        f"{_JOBS} queue NOT IN (SELECT id FROM localqueue_queues)"
    ),
    "waits for a group and is in none": f"{_JOBS} state = 2 AND grp IS NULL",
    "waits in a group that no job leads": f"""{_JOBS} state = 2 AND grp IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM localqueue_messages WHERE queue = job.queue
        AND grp = job.grp AND state IN (0, 1, 3))""",
    "is running and has no receipt": f"{_JOBS} state = 3 AND receipt IS NULL",
    "is a dead letter without a reason, or has a reason and is none": (
        f"{_JOBS} (state = 5) <> (reason IS NOT NULL)"
    ),
    "has fewer than no deliveries": f"{_JOBS} attempts < 0",
}


def questions() -> list[Statement]:
    """Return the queries of a check: SQLite's own, then one for each rule."""
    limited = [[f"{rule} LIMIT {_NAMED + 1}"] for rule in _RULES.values()]
    return [["SELECT integrity_check FROM pragma_integrity_check"], *limited]


def faults(answers: list[list[object]]) -> list[str]:
    """Return what the first column of each answer says is wrong."""
    own, *found = answers
    named = [f"SQLite: {text}" for text in own if text != "ok"]
    for what, keys in zip(_RULES, found, strict=True):
        named += [f"The job with key {key} {what}." for key in keys[:_NAMED]]
        if len(keys) > _NAMED:
            named.append(f"And there are more: each {what}.")
    return named


def backup(client: RqliteClient, target: str) -> None:
    """Write a node's copy of the database to the new file ``target``.

    Raises ``InvalidInput`` where something has its name or that of its part, and
    ``StoreUnavailable`` where no node gives one or it can't be written.
    """
    part = f"{target}.part"
    try:
        with open(part, "xb") as file:
            client.fetch_backup(file)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, target)
        _sync_folder(os.path.dirname(target))
    except FileExistsError as error:
        if error.filename == part and error.filename2 is None:
            raise _taken(part) from error
        os.unlink(part)
        raise _taken(target) from error
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise StoreUnavailable(f"{target} can't be written: {error}.") from error
    except NotStored:
        os.unlink(part)
        raise
    os.unlink(part)


def _taken(path: str) -> InvalidInput:
    return InvalidInput(
        f"{path} is there already, and a backup overwrites nothing; choose another name or"
        " remove it."
    )


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
