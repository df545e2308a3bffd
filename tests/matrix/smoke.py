"""Tries the installed package, from a directory that is not the checkout. No Rust, no tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

import django_localqueue
from django_localqueue import SimpleQueue, Worker, queues

assert shutil.which("cargo") is None, "Rust is on PATH"
package = Path(django_localqueue.__file__).parent
assert package.parent.name == "site-packages", package
for part in ("py.typed", "_native.pyi", "templates/admin/django_localqueue", "static"):
    assert (package / part).exists(), f"{part} is missing in the installed package"

done = []
with tempfile.TemporaryDirectory() as folder:
    with SimpleQueue(Path(folder) / "plain") as queue:
        queue.put({"number": 1})
        Worker(queue, lambda job: done.append(job.data["number"]), burst=True).run()
        assert done == [1], done
        assert queue.stats().acked == 1

    settings.configure(
        BASE_DIR=Path(folder),
        SECRET_KEY="smoke",
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", "django_localqueue"],
        LOCALQUEUE={"default": {"HANDLER": "builtins.repr"}},
        LOCALQUEUE_CONSOLE={"AUTO_REGISTER": False},
        SILENCED_SYSTEM_CHECKS=["django_localqueue.W007"],
    )
    django.setup()
    call_command("check", fail_level="WARNING")
    queues["default"].put("by settings")
    call_command("runqueueworker", burst=True, verbosity=0)
    assert queues["default"].stats().acked == 1
    queues.close_all()

print("the wheel works: SQLite queue, worker, settings and command")
