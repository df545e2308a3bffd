"""Settings of the suite's process and of the workers that it starts."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(os.environ["OUTSIDE_FOLDER"])
NODES = os.environ["OUTSIDE_NODES"].split()

SECRET_KEY = "tests only"
USE_TZ = True
INSTALLED_APPS = ["django_localqueue", "django_tasks_db"]
if find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "db.sqlite3",
        "TEST": {"NAME": FOLDER / "test.sqlite3"},
    }
}
CLASS = "rqlite.RqliteQueue" if NODES else "sqlite.SQLiteQueue"
# The worker of these tests is killed: its job is taken over when the lease has run out.
QUEUE = {
    "BACKEND": f"django_localqueue.backends.{CLASS}",
    "LOCATION": NODES or FOLDER / "queue",
    "TEST": {"LOCATION": NODES or FOLDER / "queue"},
    "OPTIONS": {"lease_seconds": 3},
}
LOCALQUEUE = {"default": QUEUE, "queue-1": QUEUE}
LOCALQUEUE_WORKER = {"HEARTBEAT_INTERVAL": 1}
LOCALQUEUE_CONSOLE = {"AUTO_REGISTER": False}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
