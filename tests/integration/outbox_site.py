"""A project with an outbox, as processes that tests kill: ``python -m ... <act> <arguments>``.

Its folder, and its database as Django's settings, come in the environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["OUTBOX_FOLDER"])
DATABASES = os.environ.get("OUTBOX_DATABASES", "default").split()


def set_up() -> None:
    import django
    from django.conf import settings

    apps = ["django_localqueue", "django_localqueue.outbox"]
    if sys.modules.get("django_tasks") is None and not _has_own_tasks():
        apps.append("django_tasks")
    settings.configure(
        INSTALLED_APPS=apps,
        USE_TZ=True,
        SECRET_KEY="tests only",
        DATABASES={
            "default": json.loads(os.environ["OUTBOX_DATABASE"]),
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "other.db")},
        },
        LOCALQUEUE={"default": {"LOCATION": FOLDER / "queue", "OPTIONS": {"durability": "normal"}}},
        TASKS={
            "default": {
                "BACKEND": "django_localqueue.tasks.LocalQueueBackend",
                "OPTIONS": {"outbox": True, "databases": DATABASES},
            }
        },
    )
    django.setup()


def _has_own_tasks() -> bool:
    from importlib.util import find_spec

    return find_spec("django.tasks") is not None


def enqueue(first: int, last: int) -> None:
    """Enqueue calls with these numbers in one transaction, and as many that are rolled back."""
    from django.db import transaction

    from tests.integration.outbox_tasks import note

    with transaction.atomic():
        for number in range(first, last):
            note.enqueue(number)
    with transaction.atomic():
        for number in range(first, last):
            note.enqueue(-1 - number)
        transaction.set_rollback(True)


def enqueue_in_both() -> None:
    """Enqueue by two databases, one after the other, and roll one transaction of each back."""
    from django.db import transaction

    from tests.integration.outbox_tasks import note

    for number in range(100):
        database = DATABASES[number % 2]
        with transaction.atomic(using=database):
            note.enqueue(number, job_options={"database": database})
            if number % 10 > 5:
                transaction.set_rollback(True, using=database)


def consume() -> None:
    """Take what is in the queue, write it down, ack it and purge it."""
    from django_localqueue import queues

    queue = queues["default"]
    while jobs := queue.get_many(100):
        with (FOLDER / "ran").open("a") as file:
            file.writelines(f"{job.data['args'][0]}\n" for job in jobs)
        for job in jobs:
            queue.ack(job)
    queue.purge(0)


def kill(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        kill()

    return call


def move_and_die(step: str) -> None:
    """Move, and be killed at a step."""
    from django.db.models.query import QuerySet

    from django_localqueue.outbox import mover

    patched: Any
    match step:
        case "looked":
            patched, name, new = QuerySet, "update", kill
        case "locked":
            patched, name, new = mover, "_put", kill
        case "put":
            patched, name, new = mover, "_put", killed_after(mover._put)
        case "deleted":
            patched, name, new = QuerySet, "delete", killed_after(QuerySet.delete)
        case _:
            patched, name, new = mover, "move_from", killed_after(mover.move_from)
    setattr(patched, name, new)
    mover.move(limit=15)


def main(act: str, *arguments: str) -> None:
    set_up()
    from django.core.management import call_command

    from django_localqueue.outbox import mover

    match act:
        case "begin":
            call_command("migrate", verbosity=0)
            enqueue(0, 20)
            move_and_die(arguments[0])
        case "both":
            for database in DATABASES:
                call_command("migrate", verbosity=0, database=database)
            enqueue_in_both()
        case "finish":
            consume()
            while mover.move(limit=15):
                pass
            consume()
        case "worker":
            call_command("runqueueworker", verbosity=0)
        case "move":
            while True:
                mover.move(limit=7)
        case "enqueue":
            call_command("migrate", verbosity=0)
            for first in range(0, 300, 10):
                enqueue(first, first + 10)


if __name__ == "__main__":
    main(*sys.argv[1:])
