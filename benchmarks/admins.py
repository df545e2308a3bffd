"""How long the admin pages of other queues take, in an interpreter that has them installed.

Run by ``benchmarks.console --peers``, as ``admins.py PEER DATABASE ROWS ROUNDS``: fills a SQLite
database with so many jobs in each state, asks for each page as a logged-in superuser by Django's
test client, and prints a JSON object of page: [median, worst] in milliseconds. Imports nothing of
this package.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

PAYLOAD = {"task": "send-email", "to": "hello@example.com", "n": 0, "body": "x" * 40}
TRACEBACK = 'Traceback (most recent call last):\n  File "tasks.py", line 1, in run\nValueError: no'
SETTINGS: dict[str, Any] = {
    "SECRET_KEY": "for benchmarks only",
    "ALLOWED_HOSTS": ["*"],
    "USE_TZ": True,
    "ROOT_URLCONF": __name__,
    "STATIC_URL": "/static/",
    "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
    "INSTALLED_APPS": [
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
    ],
    "MIDDLEWARE": [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    "TEMPLATES": [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
}
APPS = {"django-tasks-db": ["django_tasks", "django_tasks_db"], "django-q2": ["django_q"]}
#: The addresses of the pages that both sides have; the detail page is that of the first failed.
PAGES = {
    "django-tasks-db": {
        "failed": "/admin/django_tasks_database/dbtaskresult/?status__exact=FAILED",
        "waiting": "/admin/django_tasks_database/dbtaskresult/?status__exact=READY",
        "done": "/admin/django_tasks_database/dbtaskresult/?status__exact=SUCCESSFUL",
        "page 100 of failed": "/admin/django_tasks_database/dbtaskresult/?p=100"
        "&status__exact=FAILED",
        "all": "/admin/django_tasks_database/dbtaskresult/",
    },
    "django-q2": {
        "failed": "/admin/django_q/failure/",
        "waiting": "/admin/django_q/ormq/",
        "done": "/admin/django_q/success/",
        "page 100 of failed": "/admin/django_q/failure/?p=100",
        "search in failed": "/admin/django_q/failure/?q=send",
    },
}
CHANGE = {
    "django-tasks-db": "/admin/django_tasks_database/dbtaskresult/{}/change/",
    "django-q2": "/admin/django_q/failure/{}/change/",
}
urlpatterns: list[Any] = []


def multiply(row: Any, rows: int, **fresh: str) -> None:
    """Copy a stored row by SQL until there are ``rows``; ``fresh`` is what differs, by column."""
    from django.db import connection

    table, key = row._meta.db_table, row._meta.pk.column
    columns = [field.column for field in row._meta.concrete_fields]
    if row._meta.pk.get_internal_type() in ("AutoField", "BigAutoField"):
        columns.remove(key)
    values = ", ".join(fresh.get(column, f't."{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %s)"
            f' INSERT INTO "{table}" ({names}) SELECT {values} FROM n, "{table}" t'
            f' WHERE t."{key}" = %s',
            [rows, row._meta.pk.get_db_prep_value(row.pk, connection)],
        )


def fill_django_tasks_db(rows: int) -> str:
    """Put ``rows`` results of each status; return the key of a failed one."""
    import uuid

    from django.utils import timezone
    from django_tasks_db.models import DBTaskResult

    key = ""
    for number, status in enumerate(("READY", "RUNNING", "SUCCESSFUL", "FAILED")):
        row = DBTaskResult(
            id=uuid.UUID(int=number << 64),
            status=status,
            task_path="shop.tasks.send",
            backend_name="default",
            queue_name="default",
            priority=0,
            args_kwargs={"args": [PAYLOAD], "kwargs": {}},
        )
        if status != "READY":
            row.started_at = timezone.now()
        if status in ("SUCCESSFUL", "FAILED"):
            row.finished_at = timezone.now()
        if status == "FAILED":
            row.exception_class_path, row.traceback = "builtins.ValueError", TRACEBACK
            key = str(row.pk)
        row.save(force_insert=True)
        at = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', t.enqueued_at, '-' || (i / 1000.0) || ' seconds')"
        multiply(row, rows, id=f"printf('%%032x', ({number} << 62) + i)", enqueued_at=at)
    return key


def fill_django_q2(rows: int) -> str:
    """Put ``rows`` waiting, done and failed tasks; return the key of a failed one."""
    from django.utils import timezone
    from django_q.models import OrmQ, Task
    from django_q.signing import SignedPackage

    task = {"id": "0" * 32, "name": "send", "func": "shop.send", "args": (PAYLOAD,), "kwargs": {}}
    waiting = OrmQ.objects.create(
        key="default", payload=SignedPackage.dumps(task), lock=timezone.now()
    )
    multiply(waiting, rows)
    key = ""
    for number, success in enumerate((True, False)):
        row = Task.objects.create(
            id=f"{number:032x}",
            name="send",
            func="shop.send",
            args=(PAYLOAD,),
            kwargs={},
            result=None if success else TRACEBACK,
            started=timezone.now(),
            stopped=timezone.now(),
            success=success,
        )
        key = row.pk
        at = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', t.stopped, '-' || (i / 1000.0) || ' seconds')"
        multiply(row, rows, id=f"printf('%%032x', ({number + 1} << 40) + i)", stopped=at)
    return key


FILLS = {"django-tasks-db": fill_django_tasks_db, "django-q2": fill_django_q2}


def measure(client: Any, address: str, rounds: int) -> list[float]:
    """Return median and worst milliseconds of a page, the first answer left out."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        response = client.get(address)
        times.append(1_000 * (time.perf_counter() - began))
        if response.status_code != 200:
            raise SystemExit(f"{address} answered {response.status_code}.")
    return [statistics.median(times[1:]), max(times[1:])]


def main(peer: str, database: str, rows: int, rounds: int) -> None:
    """Fill and measure; see the module."""
    from django.conf import settings

    engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": database}
    settings.configure(
        **SETTINGS | {"INSTALLED_APPS": SETTINGS["INSTALLED_APPS"] + APPS[peer]},
        DATABASES={"default": engine},
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
        Q_CLUSTER={"orm": "default", "timeout": 60, "retry": 120},
    )
    import django

    django.setup()
    from django.contrib import admin
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client
    from django.urls import path

    urlpatterns.append(path("admin/", admin.site.urls))
    call_command("migrate", verbosity=0)
    key = FILLS[peer](rows)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("operator"))
    pages = PAGES[peer] | {"a failed job": CHANGE[peer].format(key)}
    print(json.dumps({name: measure(client, address, rounds) for name, address in pages.items()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
