"""Django's own ``tests/tasks``, unchanged, on our backend.

``python -m tests.outside.django_suite FOLDER [URL ...]``, where FOLDER is ``tests/tasks`` of
Django's source distribution. The queues are in memory, or on the rqlite nodes at the URLs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import django
from django.conf import settings

from tests.outside.runner import OutsideRunner

SKIPPED = {
    # What the two backends of Django can't, and ours can.
    "ImmediateBackendTestCase.test_cannot_get_result": "results can be had",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "results can be refreshed",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "run_after is supported",
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "a worker runs the task: a KeyboardInterrupt in it fails the task, not its caller"
    ),
    # How the dummy backend keeps its results.
    "DummyBackendTestCase.test_refresh_result": "changes the dummy backend's own object",
    "DummyBackendTestCase.test_refresh_result_async": "changes the dummy backend's own object",
    # Subclasses of the abstract backend; here they are subclasses of ours.
    "CustomBackendTestCase.test_no_enqueue": "our backend isn't abstract: it has enqueue",
    "CustomBackendTestCase.test_backend_does_not_support_priority": "priorities are supported",
}


def main(folder: Path, nodes: list[str]) -> int:
    """Run the suite; returns how many tests failed."""
    sys.path.insert(0, str(folder.parent))
    waiting = {"BACKEND": "tests.outside.adapter.WaitingBackend"}
    backend = "rqlite.RqliteQueue" if nodes else "sqlite.SQLiteQueue"
    queue = {
        "BACKEND": f"django_localqueue.backends.{backend}",
        "LOCATION": nodes or ":memory:",
        "TEST": {"LOCATION": nodes or ":memory:"},
    }
    settings.configure(
        SECRET_KEY="tests only",
        USE_TZ=True,
        INSTALLED_APPS=["django_localqueue"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        LOCALQUEUE=dict.fromkeys(("default", "queue_1", "high"), queue),
        TASKS={"default": waiting},
        LOCALQUEUE_CONSOLE={"AUTO_REGISTER": False},
    )
    django.setup()
    from django.tasks.backends import base, dummy, immediate

    from django_localqueue.tasks import LocalQueueBackend
    from tests.outside.adapter import DrainingBackend, WaitingBackend

    # The suite names Django's backends by these paths.
    dummy.DummyBackend = WaitingBackend  # type: ignore[misc,assignment]
    immediate.ImmediateBackend = DrainingBackend  # type: ignore[misc,assignment]
    base.BaseTaskBackend = LocalQueueBackend  # type: ignore[misc,assignment]
    return OutsideRunner(SKIPPED).run_tests([folder.name])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
