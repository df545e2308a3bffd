"""A small Django project for tests with real worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django_localqueue
from django_localqueue import JobFilter, JobId, JobRecord, SQLiteQueue
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.rqlite import RqliteQueue

LEASE = 1.5
PATIENCE = 60  # seconds: only a test that fails waits so long
#: Where the package is that is under test: a worker must not find another that is installed.
PACKAGE = Path(django_localqueue.__file__).resolve().parent.parent

FILES = {
    "shop/__init__.py": "",
    "shop/settings.py": f"""
        from importlib.util import find_spec
        from pathlib import Path

        BASE_DIR = Path(__file__).resolve().parent.parent
        SECRET_KEY = "tests only"
        USE_TZ = True
        INSTALLED_APPS = ["django_localqueue", "shop"]
        if find_spec("django.tasks") is None:
            INSTALLED_APPS.append("django_tasks")
        DATABASES = {{
            "default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "site.sqlite3"}}
        }}
        LOCALQUEUE = {{
            "default": {{
                "LOCATION": BASE_DIR / "queue",
                "HANDLER": "shop.handlers.handle",
                "OPTIONS": {{"lease_seconds": {LEASE}, "max_retries": 2, "durability": "normal"}},
            }},
            "emails": {{}},
        }}
        LOCALQUEUE_WORKER = {{"HEARTBEAT_INTERVAL": 0.4}}
        LOCALQUEUE_SCHEDULES = {{
            "tick": {{"TASK": "shop.tasks.work", "CRON": "0 0 1 1 *", "ARGS": ["tick"]}}
        }}
        TASKS = {{"default": {{"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}}}
        """,
    "shop/broken_settings.py": """
        from shop.settings import *

        LOCALQUEUE = {"default": {"LOCATOIN": BASE_DIR / "queue"}}
        """,
    "shop/ledger.py": """
        import os
        from pathlib import Path

        BASE_DIR = Path(__file__).resolve().parent.parent


        def write(*words):
            # One write to a file that is only appended to is whole, whoever else writes.
            file = os.open(BASE_DIR / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, (" ".join(map(str, words)) + "\\n").encode())
            os.close(file)
        """,
    "shop/handlers.py": """
        from shop import ledger


        def handle(job):
            ledger.write("handled", job.data)
        """,
    "shop/tasks.py": """
        import os
        import time

        from shop import ledger

        try:
            from django.tasks import task
        except ImportError:
            from django_tasks import task


        @task
        def work(name, seconds=0):
            ledger.write("begun", name)
            time.sleep(seconds)
            ledger.write("ended", name)


        @task
        def wait_for_gate(name):
            ledger.write("begun", name)
            while not (ledger.BASE_DIR / "gate").exists():
                time.sleep(0.01)
            ledger.write("ended", name)


        @task
        def die():
            ledger.write("begun", "die")
            os._exit(9)


        @task
        def hang(name):
            ledger.write("begun", name)
            while True:
                time.sleep(0.05)


        @task
        def hang_with_the_lock(name):
            ledger.write("begun", name)
            import re

            re.match(r"(a+)+$", "a" * 64 + "b")  # for ages, and no other thread runs meanwhile


        @task
        def eat(megabytes):
            KEPT.append(bytearray(megabytes * 1_048_576))


        @task
        async def note_loop(name):
            import asyncio
            import threading

            await asyncio.sleep(0.01)
            ledger.write("loop", id(asyncio.get_running_loop()), threading.get_ident())


        @task
        async def leave():
            raise SystemExit(3)


        KEPT = []


        @task
        def fail():
            raise ValueError("no such page")
        """,
}


ON_RQLITE = """
LOCALQUEUE["default"]["BACKEND"] = "django_localqueue.backends.rqlite.RqliteQueue"
LOCALQUEUE["default"]["LOCATION"] = {urls}
del LOCALQUEUE["default"]["OPTIONS"]["durability"]
"""


class WorkerProcess:
    """``manage.py runqueueworker`` in a process of its own."""

    def __init__(self, folder: Path, number: int, *arguments: str, **environment: str) -> None:
        self.log_path = folder / f"worker{number}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", "runqueueworker", *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "shop.settings",
                    "PYTHONPATH": os.pathsep.join([str(folder), str(PACKAGE)]),
                    **environment,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def children(self) -> list[int]:
        """The processes that it started and that are not reaped."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end; its log:\n{self.log}") from None

    def wait_for_log(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.log:
            assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{self.log}"
            time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Site:
    """The project in a folder, its queue, and the workers that a test started.

    With ``urls`` its queues are on those nodes of rqlite, else in one file.
    """

    def __init__(self, folder: Path, urls: Sequence[str] = ()) -> None:
        self.folder = folder
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        self.queue: BaseQueue
        if urls:
            self.append("settings", ON_RQLITE.format(urls=list(urls)))
            self.queue = RqliteQueue(urls, lease_seconds=LEASE, max_retries=2)
        else:
            self.queue = SQLiteQueue(
                folder / "queue", lease_seconds=LEASE, max_retries=2, durability="normal"
            )
        self.workers: list[WorkerProcess] = []

    def append(self, module: str, text: str) -> None:
        """Write more at the end of a module of the project."""
        with (self.folder / "shop" / f"{module}.py").open("a") as file:
            file.write("\n" + textwrap.dedent(text))

    def put(self, task: str, *args: Any) -> JobId:
        return self.queue.put(
            {"args": list(args), "kwargs": {}},
            job_id=str(uuid.uuid4()),
            task=f"shop.tasks.{task}",
        )

    def start(self, *arguments: str, **environment: str) -> WorkerProcess:
        worker = WorkerProcess(self.folder, len(self.workers) + 1, *arguments, **environment)
        self.workers.append(worker)
        return worker

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def ledger(self, word: str) -> list[str]:
        """What stands in the ledger behind ``word``, in order."""
        path = self.folder / "ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]

    def acked(self) -> list[JobRecord]:
        return self.queue.list(JobFilter(state="acked"), limit=1_000).records

    def wait_until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            logs = "\n".join(worker.log for worker in self.workers)
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s\n{logs}"
            time.sleep(0.02)

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait(PATIENCE)
        self.queue.close()
