"""Django tasks on this queue, end to end: enqueued by one process, run by one worker command.

    python -m benchmarks.tasks [--n 5000] [--threads N] [--processes N] [--idle 20] [--folder DIR]

Each figure is of a small project of its own in a fresh folder, durable, the worker at its
defaults unless told otherwise. The task writes the time at which it runs to a file, 16 bytes.
Printed: enqueues a second; tasks a second, from the first task's start to the last's, for a
task that does no more, and for one that also stores a row in the project's SQLite database;
milliseconds from enqueue to start in an idle worker, median and worst of 20; processor time
and memory of the idle worker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT

MARK = struct.Struct("<qq")
PATIENCE = 120.0

FILES = {
    "bench/__init__.py": "",
    "bench/settings.py": """
        from pathlib import Path

        BASE_DIR = Path(__file__).resolve().parent.parent
        SECRET_KEY = "for benchmarks only"
        USE_TZ = True
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        INSTALLED_APPS = ["django.contrib.contenttypes", "django_localqueue", "bench"] + {extra!r}
        LOCALQUEUE_CONSOLE = {{"AUTO_REGISTER": False}}
        DATABASES = {{
            "default": {{
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": BASE_DIR / "site.sqlite3",
                "OPTIONS": {{"init_command": "PRAGMA journal_mode=WAL", "timeout": 30}},
            }}
        }}
        TASKS = {{"default": {{"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}}}
        """,
    "bench/models.py": """
        from django.db import models


        class Row(models.Model):
            number = models.IntegerField()
        """,
    "bench/tasks.py": """
        import os
        import struct
        import time

        try:
            from django.tasks import task
        except ImportError:
            from django_tasks import task

        FILE = []


        def mark(number):
            if not FILE:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                FILE.append(os.open(os.environ["BENCH_MARKS"], flags))
            os.write(FILE[0], struct.pack("<qq", number, time.monotonic_ns()))


        @task
        def noop(number):
            mark(number)


        @task
        def write(number):
            from bench.models import Row

            Row.objects.create(number=number)
            mark(number)
        """,
    "client.py": """
        import json
        import sys
        import time

        import django

        django.setup()
        from bench import tasks

        task, how, count = getattr(tasks, sys.argv[1]), sys.argv[2], int(sys.argv[3])
        task.enqueue(-1)
        if how == "burst":
            began = time.perf_counter()
            for number in range(count):
                task.enqueue(number)
            print(json.dumps(count / (time.perf_counter() - began)))
        else:
            time.sleep(2)
            sent = []
            for number in range(count):
                time.sleep(0.1 + 0.013 * (number % 7))
                sent.append(time.monotonic_ns())
                task.enqueue(number)
            print(json.dumps(sent))
        """,
}


class Project:
    """A project in a folder, for one figure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks_path = folder / "marks"
        extra = [] if find_spec("django.tasks") else ["django_tasks"]
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            text = textwrap.dedent(text)
            path.write_text(text.format(extra=extra) if name.endswith("settings.py") else text)
        self._run("-m", "django", "migrate", "--run-syncdb", "-v", "0")

    def client(self, *arguments: object) -> Any:
        return json.loads(self._run("client.py", *map(str, arguments)))

    def worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "django", "runqueueworker", "-v", "0", *arguments],
            cwd=self.folder,
            env=self._environment(),
            stderr=subprocess.DEVNULL,
        )

    def marks(self) -> dict[int, int]:
        """When each task ran, by its number; the warm-up left out."""
        raw = self.marks_path.read_bytes() if self.marks_path.exists() else b""
        raw = raw[: len(raw) // MARK.size * MARK.size]
        return {number: at for number, at in MARK.iter_unpack(raw) if number >= 0}

    def wait(self, count: int) -> dict[int, int]:
        give_up = time.monotonic() + PATIENCE
        while len(found := self.marks()) < count:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{len(found)} of {count} tasks ran within {PATIENCE} s")
            time.sleep(0.05)
        return found

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "BENCH_MARKS": str(self.marks_path),
        }

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment(),
            check=True,
            stdout=subprocess.PIPE,
            timeout=PATIENCE,
        )
        return done.stdout.decode()


def drained(folder: Path, task: str, count: int, options: list[str]) -> tuple[float, float]:
    """Return enqueues and tasks a second."""
    project = Project(folder)
    enqueued = float(project.client(task, "burst", count))
    worker = project.worker(*options)
    try:
        found = sorted(project.wait(count).values())
    finally:
        end(worker)
    return enqueued, (len(found) - 1) / ((found[-1] - found[0]) / 1e9)


def woken(folder: Path, idle: float, options: list[str]) -> dict[str, float]:
    """Return milliseconds from enqueue to start, and what the idle worker costs."""
    project = Project(folder)
    worker = project.worker(*options)
    try:
        sent = project.client("noop", "paced", 20)
        found = project.wait(20)
        waits = [(found[number] - at) / 1e6 for number, at in enumerate(sent)]
        before = processor_seconds(worker.pid)
        time.sleep(idle)
        used = processor_seconds(worker.pid) - before
        memory = resident_megabytes(worker.pid)
    finally:
        end(worker)
    return {
        "wake median ms": statistics.median(waits),
        "wake worst ms": max(waits),
        "idle % of a core": 100 * used / idle,
        "rss MB": memory,
    }


def end(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(40)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def processor_seconds(pid: int) -> float:
    total = 0
    for one in tree(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=5_000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--only", choices=("noop", "write", "wake"))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    options = [] if given.threads is None else ["--threads", str(given.threads)]
    options += [] if given.processes is None else ["--processes", str(given.processes)]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for task in ("noop", "write"):
            if given.only in (None, task):
                path = Path(folder) / task
                path.mkdir()
                enqueued, rate = drained(path, task, given.n, options)
                print(f"{task}: {enqueued:,.0f} enqueues/s, {rate:,.0f} tasks/s", flush=True)
        if given.only in (None, "wake"):
            path = Path(folder) / "wake"
            path.mkdir()
            for name, value in woken(path, given.idle, options).items():
                print(f"{name}: {value:.2f}", flush=True)


if __name__ == "__main__":
    main()
