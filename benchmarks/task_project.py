"""The small project in which every task system runs the same tasks, and its processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.task_systems import System

MARK = struct.Struct("<qq")
PATIENCE = 120.0
#: A task that is to be killed lasts longer than a busy machine takes to get to it.
SLOW_SECONDS = 60

SETTINGS = """
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "for benchmarks only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "bench", *{apps!r}]
DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "site.sqlite3",
        "CONN_MAX_AGE": {conn_max_age!r},
        "OPTIONS": {{
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}",
        }},
    }}
}}
"""

MODELS = """
from django.db import models


class Row(models.Model):
    number = models.IntegerField()
"""

TASKS = """
import os
import struct
import time

{imports}

FILE = []


def mark(number):
    if not FILE:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        FILE.append(os.open(os.environ["BENCH_MARKS"], flags))
    os.write(FILE[0], struct.pack("<qq", number, time.monotonic_ns()))


@{decorator}
def noop(number):
    mark(number)


@{db_decorator}
def write(number):
    from bench.models import Row

    Row.objects.create(number=number)
    mark(number)


@{decorator}
def slow(number):
    mark(number)
    time.sleep({slow_seconds})


def send(name, number):
    task = globals()[name]
    {send}
"""

CLIENT = """
import json
import sys
import time

import django

django.setup()
from bench.tasks import send

name, how, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
send("noop", -1)
if how == "burst":
    began = time.perf_counter()
    sent = 0
    while sent < count and time.perf_counter() - began < seconds:
        send(name, sent)
        sent += 1
    print(json.dumps([sent, sent / (time.perf_counter() - began)]))
else:
    time.sleep(2)
    sent = []
    for number in range(count):
        time.sleep(0.1 + 0.013 * (number % 7))
        sent.append(time.monotonic_ns())
        send(name, number)
    time.sleep(1)  # the end of a process takes the processor from whoever runs its last task
    print(json.dumps(sent))
"""


class Project:
    """A project in a folder, for one figure.

    Args:
        folder: an existing one, empty.
        kind: the system that runs its tasks.
        python: the interpreter.
        redis: the URL of a server, where the system needs it.
        synchronous: of the project's own SQLite database.
    """

    def __init__(
        self, folder: Path, kind: type[System], python: str, redis: str, synchronous: str = "NORMAL"
    ) -> None:
        self.folder = folder
        self.system = system = kind(folder, redis)
        self._python = python
        self._marks = folder / "marks"
        settings = SETTINGS.format(
            apps=system.apps, conn_max_age=system.conn_max_age, synchronous=synchronous
        )
        tasks = TASKS.format(
            imports=system.imports,
            decorator=system.decorator,
            db_decorator=system.db_decorator or system.decorator,
            slow_seconds=SLOW_SECONDS,
            send=system.send,
        )
        files = {
            "bench/__init__.py": "",
            "bench/settings.py": settings + system.settings(),
            "bench/models.py": MODELS,
            "bench/tasks.py": tasks,
            "client.py": CLIENT,
            **system.files(),
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        self._run("-m", "django", "migrate", "--run-syncdb", "-v", "0")

    def client(self, *arguments: object) -> Any:
        """Run the program that enqueues; return what it tells."""
        return json.loads(self._run("client.py", *map(str, arguments)))

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker of the system."""
        with open(self.folder / "worker.log", "ab") as log:
            return subprocess.Popen(
                [self._python, *self.system.worker, *options],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def marks(self) -> list[tuple[int, int]]:
        """Return number and time of each task that ran; the warm-up left out."""
        raw = self._marks.read_bytes() if self._marks.exists() else b""
        raw = raw[: len(raw) // MARK.size * MARK.size]
        return [(number, at) for number, at in MARK.iter_unpack(raw) if number >= 0]

    def wait(self, count: int, seconds: float = PATIENCE) -> list[tuple[int, int]]:
        """Return the marks once there are so many; fewer where the time is over."""
        give_up = time.monotonic() + seconds
        while len(found := self.marks()) < count and time.monotonic() < give_up:
            time.sleep(0.05)
        return found

    def _environment(self) -> dict[str, str]:
        foreign = ("PYTHON", "DJANGO", "LOCALQUEUE", "CELERY", "RQ_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        paths = [self.folder, ROOT] if self.system.is_ours else [self.folder]
        programs = Path(self._python).parent  # some workers start programs of their package
        return {
            **kept,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "BENCH_MARKS": str(self._marks),
        }

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._python, *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with: {done.stderr[-600:]}")
        return done.stdout


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis of one's own with its defaults; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > give_up:
                raise TimeoutError("redis-server did not start")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        end(server)


def has_redis() -> bool:
    """Whether there is a Redis to run."""
    return shutil.which("redis-server") is not None


def end(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    """End a worker and the processes below it: asked to, or killed all at once."""
    if kill:
        for pid in tree(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        end(process, kill=True)


def tree(pid: int) -> list[int]:
    """Return a process and those below it; none where it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        below = [
            child
            for thread in threads
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []
    return [pid, *(one for child in below for one in tree(int(child)))]


def processor_seconds(pid: int) -> float:
    """Return what a process and those below it have used, those they waited for included."""
    total = 0
    for one in tree(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def resident_mebibytes(pid: int) -> float:
    """Return the memory of a process and those below it; what they share counts for each."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def compile_ours() -> None:
    """Make the bytecode of this package, as an installed one has it; without, memory is more."""
    command = [sys.executable, "-m", "compileall", "-q", str(ROOT / "django_localqueue")]
    subprocess.run(command, check=True)
