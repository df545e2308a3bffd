"""``manage.py localqueue`` as a process: each action and option, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from django_localqueue import SQLiteQueue
from django_localqueue.records import ScheduleRecord
from django_localqueue.transports import RqliteTransport
from tests.fakes.rqlite import FakeCluster
from tests.integration.worker_site import PACKAGE, PATIENCE, Site


class Command:
    """Runs the command in a site's folder."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "django", "localqueue", *arguments],
            cwd=self.site.folder,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PYTHONPATH": os.pathsep.join([str(self.site.folder), str(PACKAGE)]),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return what it printed; where it shall fail, what it said of that."""
        process = self.start(*arguments)
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, (process.returncode, out, errors)
        assert "Traceback (most" not in errors
        return errors if code and not out else out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))


@pytest.fixture
def command(site: Site) -> Command:
    site.append(
        "settings", "SILENCED_SYSTEM_CHECKS = [f'django_localqueue.W{n}' for n in ('005', '006')]"
    )
    return Command(site)


@pytest.fixture
def emails(site: Site) -> Iterator[SQLiteQueue]:
    with SQLiteQueue(site.folder / "queue", "emails", durability="normal") as queue:
        yield queue


def fail(site: Site, error: str, task: str = "shop.tasks.fail") -> str:
    id = site.queue.put({"args": [], "kwargs": {}}, job_id=str(uuid.uuid4()), task=task)
    site.queue.fail(site.queue.get_nowait(), ValueError(error))
    return str(id)


def test_stats_of_all_queues_or_of_some(command: Command, emails: SQLiteQueue) -> None:
    emails.put(1)
    rows = {row["queue"]: row for row in command.json("stats")}
    assert (rows["emails"]["ready"], rows["default"]["ready"]) == (1, 0)
    heads, row = command.run("stats", "emails").splitlines()
    assert heads.split()[:2] == ["queue", "ready"]
    assert row.split()[:2] == ["emails", "1"]


def test_stats_are_shown_again_and_again_until_it_is_interrupted(command: Command) -> None:
    process = command.start("stats", "default", "--watch", "0.05", "--json")
    assert process.stdout
    assert [json.loads(process.stdout.readline())[0]["ready"] for _ in range(3)] == [0, 0, 0]
    command.site.put("work", 1)
    while json.loads(process.stdout.readline())[0]["ready"] != 1:
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert errors == ""


def test_dead_letters_are_listed_shown_and_acted_on(command: Command, site: Site) -> None:
    ids = [fail(site, error) for error in ("one", "two", "two more")]
    other = fail(site, "two", task="shop.tasks.work")
    assert {row["id"] for row in command.json("failed", "list")} == {*ids, other}
    two = command.json("failed", "list", "--text", "two", "--task", "shop.tasks.fail")
    assert {row["id"] for row in two} == set(ids[1:])
    assert len(command.json("failed", "list", "--limit", "1")) == 1
    assert command.json("failed", "list", "--error-class", "KeyError") == []
    assert command.json("failed", "list", "--queue", "emails") == []
    shown = command.run("failed", "show", ids[0])
    assert "message: one" in shown
    assert "ValueError: one" in shown
    assert command.json("failed", "discard", "--all", "--dry-run") == {"matching": 4}
    assert command.json("failed", "retry", ids[0])["done"] == 1
    assert site.queue.lookup(ids[0]).state == "ready"
    assert "2 done" in command.run("failed", "purge", "--text", "two", *ids[1:])
    assert command.json("failed", "discard", "--all")["done"] == 1
    assert [row["reason"] for row in command.json("failed", "list")] == ["discarded"]


def test_how_acts_on_dead_letters_end_that_cant_be(command: Command) -> None:
    assert "--all" in command.run("failed", "retry", code=2)
    assert "needs the ids" in command.run("failed", "show", code=2)
    assert "no job" in command.run("failed", "show", str(uuid.uuid4()), code=1)
    assert command.json("failed", "retry", str(uuid.uuid4()), code=1)["not_found"] == 1
    assert "nowhere" in command.run("failed", "list", "--queue", "nowhere", code=2)
    assert "--limit" in command.run("failed", "list", "--limit", "0", code=2)
    assert "explode" in command.run("failed", "explode", code=2)
    assert "explode" in command.run("explode", code=2)


def test_finished_jobs_are_purged_by_age(command: Command, site: Site) -> None:
    fail(site, "no")
    site.put("work", 1)
    site.queue.ack(site.queue.get_nowait())
    assert "--older-than" in command.run("purge", code=2)
    assert command.json("purge", "--older-than", "3600") == {"removed": 0}
    assert command.json("purge", "default", "--older-than", "0", "--dry-run") == {"matching": 1}
    assert "Removed 1 jobs." in command.run("purge", "--older-than", "0")
    assert command.json("purge", "--older-than", "0", "--state", "failed") == {"removed": 1}


def test_a_queue_is_paused_and_resumed_for_a_worker(command: Command, site: Site) -> None:
    assert command.json("pause", "default", "emails") == {"paused": ["default", "emails"]}
    id = site.put("work", 1)
    # It finds nothing that it may take: so a burst is over though a job waits.
    assert site.start("--burst", "--max-idle", "1").wait() == 0
    assert site.queue.lookup(id).state == "ready"
    assert "Resumed default." in command.run("resume", "default")
    assert site.start("--burst").wait() == 0
    assert site.queue.lookup(id).state == "acked"


def test_a_worker_is_seen_told_and_missed(command: Command, site: Site) -> None:
    worker = site.start("--name", "w", "--threads", "3")
    site.wait_until(site.queue.workers, "the report")
    (row,) = command.json("workers")
    assert (row["name"], row["pid"], row["alive"]) == ("w", worker.process.pid, True)
    assert (row["concurrency"], row["queues"]) == (3, ["default", "emails"])
    assert command.json("check", "--worker", "w", "--max-age", "60")["well"]
    assert "Asked w to be quiet." in command.run("workers", "quiet", "w")
    site.wait_until(lambda: site.queue.workers()[0].state == "quiet", "quiet")
    assert command.json("workers", "resume", "w") == {"asked": ["w"], "command": "resume"}
    site.wait_until(lambda: site.queue.workers()[0].state == "running", "running")
    assert "needs the names" in command.run("workers", "stop", code=2)
    assert "no worker 'v'" in command.run("workers", "stop", "v", code=1)
    command.run("workers", "stop", "w")
    assert worker.wait() == 0
    assert "no worker 'w'" in command.run("check", "--worker", "w", code=1)
    killed = site.start("--name", "k")
    site.wait_until(site.queue.workers, "the other report")
    killed.send(signal.SIGKILL)
    killed.wait()
    said = command.json("check", "--worker", "k", code=1)
    assert said == {"well": False, "faults": ["The worker k is dead."]}


def test_a_schedule_is_seen_run_paused_and_resumed(command: Command, site: Site) -> None:
    site.queue.save_schedule(
        ScheduleRecord("tick", "0 0 1 1 *", "shop.tasks.work", args=("tick",), next_at=10)
    )
    (row,) = command.json("schedule")
    assert (row["name"], row["expression"], row["paused"]) == ("tick", "0 0 1 1 *", False)
    id = command.json("schedule", "run", "tick")["tick"]
    assert site.queue.lookup(id).task == "shop.tasks.work"
    assert "tick is paused" in command.run("schedule", "pause", "tick")
    assert command.json("schedule")[0]["paused"]
    assert command.json("schedule", "resume", "tick")["tick"].endswith("-01-01T00:00:00+00:00")
    assert "there are tick" in command.run("schedule", "run", "tock", code=1)


def test_a_backup_is_a_store_and_overwrites_nothing(command: Command, site: Site) -> None:
    id = site.put("work", 1)
    (site.folder / "copy").mkdir()
    path = site.folder / "copy" / "localqueue.db"
    assert command.json("backup", str(path), "--queue", "emails") == {"path": str(path)}
    with SQLiteQueue(site.folder / "copy") as copy:
        assert copy.lookup(id).state == "ready"
    assert "copy" in command.run("backup", str(path), code=2)


def test_a_damaged_store_is_told_by_check_and_ends_others_with_3(
    command: Command, site: Site
) -> None:
    site.queue.put_many(["x" * 500] * 200)
    site.queue.close()
    path = site.folder / "queue" / "localqueue.db"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    assert "localqueue.db" in command.run("failed", "list", code=3)
    assert "localqueue.db" in command.run("check", code=3)


def test_a_wrong_setting_ends_with_2(command: Command, site: Site) -> None:
    site.append("settings", "LOCALQUEUE = {'default': {'LOCATOIN': 'x'}}")
    assert "LOCATOIN" in command.run("stats", code=2)


def test_messages_of_the_transport_are_adopted(command: Command, site: Site) -> None:
    assert "not on rqlite" in command.run("adopt", code=2)
    with FakeCluster() as cluster:
        with RqliteTransport.from_url(cluster.urls) as transport:
            transport.publish("a", "1")
        site.append(
            "settings",
            f"""
            LOCALQUEUE = {{
                "default": {{
                    "BACKEND": "django_localqueue.backends.rqlite.RqliteQueue",
                    "LOCATION": {cluster.urls},
                }}
            }}
            """,
        )
        assert command.json("adopt") == {"moved": 1, "left": 0}
        assert "Moved 0 messages into the queue 'default'." in command.run("adopt", "default")
