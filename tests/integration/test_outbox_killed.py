"""A mover that is killed at any step loses nothing and doubles nothing, on SQLite and PostgreSQL.

Between the death and the successor all jobs that were put are run and purged.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import SimpleQueue

STEPS = ("looked", "locked", "put", "deleted", "committed")
PATIENCE = 90.0


@contextlib.contextmanager
def postgres() -> Iterator[dict[str, Any]]:
    """A PostgreSQL server of its own, on a socket in a folder; as Django's settings."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [
        os.path.dirname(shutil.which("initdb") or "")
    ]
    if not (Path(found[-1]) / "initdb").exists():
        pytest.skip("PostgreSQL (initdb, postgres) is not installed")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    folder = tempfile.mkdtemp(prefix="lq")
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # which PostgreSQL refuses to run as
        shutil.chown(folder, "postgres", "postgres")
        user = {"user": "postgres", "group": "postgres"}
    data = f"{folder}/data"
    try:
        subprocess.run(
            [f"{found[-1]}/initdb", "-D", data, "-A", "trust", "-U", "test", "-N"],
            check=True, capture_output=True, cwd="/", **user,
        )  # fmt: skip
        server = subprocess.Popen(
            [f"{found[-1]}/postgres", "-D", data, "-k", folder, "-c", "listen_addresses="],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **user,
        )  # fmt: skip
        try:
            wait_for(lambda: os.path.exists(f"{folder}/.s.PGSQL.5432"))
            yield {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres", "USER": "test", "HOST": folder,
            }  # fmt: skip
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(condition: Any) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, "it never came to pass"
        time.sleep(0.005)  # the pace of looking


class Site:
    def __init__(self, folder: Path, database: dict[str, Any]) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "OUTBOX_FOLDER": str(folder),
            "OUTBOX_DATABASE": json.dumps(database),
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.outbox_site", *arguments]
        return subprocess.Popen(command, env=self.environment)

    def run(self, *arguments: str) -> int:
        return self.start(*arguments).wait(PATIENCE)

    def ran(self) -> list[int]:
        return [int(line) for line in (self.folder / "ran").read_text().split()]


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, Any]]:
    with postgres() as settings:
        yield settings


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    if request.param == "postgres":
        database = request.getfixturevalue("server")
        reset = (
            "import psycopg, sys\n"
            "with psycopg.connect(host=sys.argv[1], user='test', dbname='postgres',"
            " autocommit=True) as connection:\n"
            "    connection.execute('DROP SCHEMA public CASCADE')\n"
            "    connection.execute('CREATE SCHEMA public')\n"
        )
        subprocess.run([sys.executable, "-c", reset, database["HOST"]], check=True)
    return Site(tmp_path, database)


@pytest.mark.parametrize("step", STEPS)
def test_a_mover_killed_at_a_step_leaves_each_job_to_run_once_and_in_order(
    step: str, site: Site
) -> None:
    assert site.run("begin", step) == -signal.SIGKILL
    assert site.run("finish") == 0
    assert site.ran() == list(range(20))


def test_movers_killed_in_the_middle_of_their_work_move_each_job_once(site: Site) -> None:
    assert site.run("enqueue") == 0
    with SimpleQueue(site.folder / "queue", durability="normal") as queue:
        put = 0
        for _ in range(4):
            movers = [site.start("move") for _ in range(2)]
            wait_for(lambda before=put: queue.stats().ready > before)
            for mover in movers:
                mover.kill()
                mover.wait(PATIENCE)
            put = queue.stats().ready
            if put == 300:
                break
    assert site.run("finish") == 0
    assert site.ran() == list(range(300))


def test_each_database_has_an_outbox_of_its_own(tmp_path: Path) -> None:
    default = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    site = Site(tmp_path, default)
    site.environment["OUTBOX_DATABASES"] = "default other"
    assert site.run("both") == 0
    assert site.run("finish") == 0
    kept = [number for number in range(100) if number % 10 <= 5]
    assert sorted(site.ran()) == kept
    for parity in (0, 1):
        ran = [number for number in site.ran() if number % 2 == parity]
        assert ran == sorted(ran)


def test_a_worker_moves_what_is_in_the_outbox(site: Site) -> None:
    assert site.run("enqueue") == 0
    worker = site.start("worker")
    try:
        with SimpleQueue(site.folder / "queue", durability="normal") as queue:
            wait_for(lambda: queue.stats().acked == 300)
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
