"""The suite of django-tasks-db on our backend and worker: ``python suite.py``.

Run in a folder that holds this one's files, the suite's ``tests.py`` in its ``tests``, and
``runner.py`` of the folder above.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.db_worker_test_settings"
django.setup()

from django.test import TransactionTestCase  # noqa: E402
from runner import OutsideRunner  # noqa: E402

from django_localqueue.tasks.compat import TaskResultStatus  # noqa: E402
from tests import tasks, tests  # noqa: E402

from django_tasks_db.models import DBTaskResult  # noqa: E402  # isort: skip

TABLE = "about the table of the other package"
FLAG = "a flag, or a message, of the other package's command"
IDS = "an option of the other package, for the ids"
PAST = "makes rows with any times; a job's are those of what happened"
SKIPPED = {
    "AdminTestCase": "the other package's admin of its table",
    "ConnectionExclusiveTranscationTestCase": "locks of Django's database",
    "DBTaskResultOrderingTestCase": "the order of the table's rows",
    "DatabaseTaskResultTestCase": "locks of the table's rows",
    **dict.fromkeys(
        (
            "DatabaseBackendTestCase.test_database_backend_app_missing",
            "DatabaseBackendTestCase.test_index_scan_for_ready",
            "DatabaseBackendTestCase.test_priority_range_check",
            "DatabaseBackendTestCase.test_run_after_null_0016_migration",
            "DatabaseBackendTestCase.test_task_name",
        ),
        TABLE,
    ),
    **dict.fromkeys(
        (
            "DatabaseBackendTestCase.test_custom_id_function",
            "DatabaseBackendTestCase.test_unknown_id_function",
            "DatabaseBackendTestCase.test_postgres_db_id_function",
            "DatabaseBackendTestCase.test_postgres_id_function_expression",
        ),
        IDS,
    ),
    "DatabaseBackendTestCase.test_invalid_task_path": "raises what it asks for, in other words",
    **dict.fromkeys(
        (
            "DatabaseBackendWorkerTestCase.test_doesnt_process_different_backend",
            "DatabaseBackendWorkerTestCase.test_empty_worker_id",
            "DatabaseBackendWorkerTestCase.test_exclude_queues_requires_processing_all_queues",
            "DatabaseBackendWorkerTestCase.test_excluding_unknown_queue_processes_selected_queues",
            "DatabaseBackendWorkerTestCase.test_fractional_interval",
            "DatabaseBackendWorkerTestCase.test_incorrect_backend",
            "DatabaseBackendWorkerTestCase.test_infinite_interval",
            "DatabaseBackendWorkerTestCase.test_max_tasks",
            "DatabaseBackendWorkerTestCase.test_negative_interval",
            "DatabaseBackendWorkerTestCase.test_negative_max_tasks",
            "DatabaseBackendWorkerTestCase.test_too_long_worker_id",
            "DatabaseBackendWorkerTestCase.test_unknown_backend",
            "DatabaseBackendWorkerTestCase.test_verbose_logging",
            "DatabaseBackendWorkerTestCase.test_zero_interval",
            "DatabaseBackendWorkerTestCase.test_zero_max_tasks",
            "DatabaseBackendPruneTaskResultsTestCase.test_incorrect_backend",
            "DatabaseBackendPruneTaskResultsTestCase.test_negative_age",
            "DatabaseBackendPruneTaskResultsTestCase.test_unknown_backend",
        ),
        FLAG,
    ),
    "DatabaseBackendWorkerTestCase.test_complex_return_value": (
        "expects the words of json; Django's own suite those that Django and we have"
    ),
    "DatabaseBackendWorkerTestCase.test_worker_with_locked_rows": "locks of the table's rows",
    **dict.fromkeys(
        (
            "DatabaseBackendWorkerTestCase.test_run_after_priority",
            "DatabaseBackendPruneTaskResultsTestCase.test_failed_min_age",
            "DatabaseBackendPruneTaskResultsTestCase.test_failed_min_age_zero",
            "DatabaseBackendPruneTaskResultsTestCase.test_min_age",
        ),
        PAST,
    ),
}
PATIENCE = 60  # the suite's own timeouts are for a machine with nothing else to do
WAIT = 60.0


class PatientPopen(subprocess.Popen[str]):
    """A worker that may take longer to end than the suite gives it."""

    started: list[PatientPopen] = []  # noqa: RUF012

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.started.append(self)

    def wait(self, timeout: float | None = None) -> int:
        return super().wait(None if timeout is None else timeout * PATIENCE)

    def is_up(self) -> bool:
        """Whether it handles signals, or has ended."""
        if self.poll() is not None:
            return True
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            (caught,) = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
            return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
        return True


def sleep(seconds: float) -> None:
    """Sleep, and where that was to give workers time to start, wait until they have."""
    time.sleep(seconds)
    if seconds == tests.DatabaseWorkerProcessTestCase.WORKER_STARTUP_TIME:
        wait_for(lambda: all(process.is_up() for process in PatientPopen.started))
        wait_for(lambda: DBTaskResult.objects.ready().count() == 0)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def ours_test_kill(self: Any) -> None:
    """Inverted: the job of a killed worker is finished by another, and says whose it was."""
    result = tasks.sleep_for.enqueue(4)
    first = self.start_worker(worker_id="first")
    sleep(self.WORKER_STARTUP_TIME)
    result.refresh()
    assert result.status == TaskResultStatus.RUNNING
    first.kill()
    assert first.wait() == -signal.SIGKILL
    self.start_worker(worker_id="second")

    def is_finished() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_for(is_finished)
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.worker_ids == ["first", "second"]


def ours_test_repeat_ctrl_c(self: Any) -> None:
    """Inverted: the second signal gives the job back, and it isn't failed."""
    result = tasks.hang.enqueue()
    process = self.start_worker(worker_id="first")
    sleep(self.WORKER_STARTUP_TIME)
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)  # a second signal counts a second after the first
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == 1
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert result.errors == []


def no_queries(self: Any, _number: int, *args: Any, **options: Any) -> Any:
    """Our queue makes no query of Django's database, however many the suite expects."""
    return count_queries(self, 0, *args, **options)


count_queries = TransactionTestCase.assertNumQueries
clean_up = TransactionTestCase._fixture_teardown


def remove_jobs(self: Any) -> None:
    clean_up(self)
    DBTaskResult.objects.clear()
    PatientPopen.started.clear()


def main() -> int:
    """Run the suite; returns how many tests failed."""
    patched = mock.Mock(wraps=subprocess, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    patched.Popen = PatientPopen
    tests.subprocess = patched
    tests.time = mock.Mock(sleep=sleep)
    tests.DatabaseWorkerProcessTestCase.test_kill = ours_test_kill
    tests.DatabaseWorkerProcessTestCase.test_repeat_ctrl_c = ours_test_repeat_ctrl_c
    TransactionTestCase.assertNumQueries = no_queries
    TransactionTestCase._fixture_teardown = remove_jobs
    return OutsideRunner(SKIPPED).run_tests(["tests.tests"])


if __name__ == "__main__":
    sys.exit(main())
