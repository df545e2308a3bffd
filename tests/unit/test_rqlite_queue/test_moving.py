"""Moving a project from SQLite to rqlite: the old store is an alias of its own, and emptied."""

from __future__ import annotations

from pathlib import Path

from django.test import override_settings

from django_localqueue import queues
from django_localqueue.tasks import run_task
from django_localqueue.tasks.compat import TaskResultStatus, task_backends
from django_localqueue.worker import Worker
from django_localqueue.worker.django import DjangoExecutor
from tests.fakes.rqlite import FakeCluster
from tests.unit.task_samples import add

SQLITE = "django_localqueue.backends.sqlite.SQLiteQueue"
RQLITE = "django_localqueue.backends.rqlite.RqliteQueue"


def test_what_waits_in_the_old_store_is_run_beside_what_is_new(
    tmp_path: Path, cluster: FakeCluster
) -> None:
    with override_settings(LOCALQUEUE={"default": {"BACKEND": SQLITE, "LOCATION": tmp_path}}):
        old = add.enqueue(1, b=2)
    moved = {
        "default": {"BACKEND": RQLITE, "LOCATION": cluster.urls},
        "before": {"BACKEND": SQLITE, "LOCATION": tmp_path, "NAME": "default"},
    }
    with override_settings(LOCALQUEUE=moved):
        new = add.enqueue(3, b=4)
        assert task_backends["default"].get_result(old.id).status == TaskResultStatus.READY
        Worker(queues.all(), DjangoExecutor(run_task, {}), burst=True).run()
        results = [task_backends["default"].get_result(result.id) for result in (old, new)]
        assert [result.return_value for result in results] == [3, 7]
        assert queues["before"].stats().ready == 0
        assert queues["default"].stats().acked == 1
