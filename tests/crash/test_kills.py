"""Short runs of the kills, and that what they are judged by can fail."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from tests.crash import scan
from tests.crash.build import MODULE, ROOT, VARIABLE, failpoints

no_module = pytest.mark.skipif(
    shutil.which("cargo", path=f"{Path.home()}/.cargo/bin:{os.environ['PATH']}") is None
    and not MODULE.exists()
    and VARIABLE not in os.environ,
    reason=f"neither cargo nor {VARIABLE} is there",
)


def crash(kills: int) -> None:
    command = [sys.executable, "-m", "tests.crash", "--kills", str(kills)]
    command += ["--seed", str(random.SystemRandom().randrange(10**9))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@no_module
@pytest.mark.timeout(600)
def test_no_kill_loses_doubles_or_disorders_anything() -> None:
    crash(20)


@no_module
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nor_do_two_hundred() -> None:
    crash(200)


def test_the_module_that_people_use_has_no_failpoint() -> None:
    from django_localqueue import _native

    assert _native.__file__ is not None
    assert b"LOCALQUEUE_FAILPOINTS" not in Path(_native.__file__).read_bytes()
    assert len(failpoints()) > 20


DAMAGE = {
    "a group has two leads": "DROP INDEX m_head; UPDATE messages SET state = 0 WHERE grp = 'g'",
    "a group waits for ever": "UPDATE messages SET state = 2 WHERE grp = 'g'",
    "a job waits for a group that it isn't in": "UPDATE messages SET state = 2 WHERE grp IS NULL",
    "an unclaimed lead is not the oldest": """
        UPDATE messages SET state = 2 WHERE grp = 'g';
        UPDATE messages SET state = 0 WHERE id = (SELECT max(id) FROM messages WHERE grp = 'g')""",
    "a receipt stands on two rows": "UPDATE messages SET receipt = 7 WHERE grp IS NULL",
    "a job is in no known state": "UPDATE messages SET state = 9 WHERE grp IS NULL",
    "a running job has no receipt": "UPDATE messages SET state = 3 WHERE grp IS NULL",
    "a job that waits counts too few": "UPDATE messages SET attempts = -1 WHERE grp IS NULL",
    "a dead letter has no reason": "UPDATE messages SET state = 5 WHERE grp IS NULL",
    "history of a job that is gone": """
        INSERT INTO history(message, n, attempt, worker, started, ended, outcome)
        VALUES (1, 1, 1, '', 0, 0, 'ack')""",
    "a group of failures counts other jobs": """
        INSERT INTO failures(queue, err_class, place, task, total, first_at, last_at)
        VALUES (1, '', '', '', 3, 0, 0)""",
    "a job is in a group of failures that isn't there": "UPDATE messages SET failure = 4",
    "counts of a group of failures that is gone": "INSERT INTO failure_counts VALUES (4, 0, 1)",
    "a unique key holds": "UPDATE messages SET unique_until = 0",
    "a queue is there without its name": "UPDATE messages SET queue = 99 WHERE grp IS NULL",
    "integrity_check": """
        PRAGMA writable_schema = ON;
        DELETE FROM sqlite_schema WHERE name = 'm_ready'""",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with SimpleQueue(tmp_path / "store") as queue:
        for _ in range(2):
            queue.put("plain")
        for _ in range(3):
            queue.put("grouped", group_id="g")
    return tmp_path / "store" / "localqueue.db"


def test_a_sound_file_has_no_faults(file: Path) -> None:
    assert list(scan.faults(file)) == []
    assert scan.counts(file) == {"default": {"ready": 5, "processing": 0, "acked": 0, "failed": 0}}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_fault_in_the_file_is_seen(what: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(DAMAGE[what])
    assert any(fault.startswith(what) for fault in scan.faults(file))


def test_a_file_that_is_too_broken_to_be_checked_is_seen(file: Path) -> None:
    with file.open("r+b") as broken:
        broken.seek(100)  # the root of the schema
        broken.write(b"\xff" * 1_000)
    assert [fault.partition(":")[0] for fault in scan.faults(file)] == ["integrity_check"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (None, None),
        ("DELETE FROM messages WHERE id = (SELECT min(id) FROM messages)", "is not there"),
        ("UPDATE messages SET state = 5, reason = 'failed'", "should be acked"),
    ],
    ids=["nothing", "a lost job", "a lost ack"],
)
def test_a_run_sees_what_was_lost(damage: str | None, problem: str | None, tmp_path: Path) -> None:
    told = in_a_process(
        f"""
        import random, sqlite3, time
        from collections import Counter
        from pathlib import Path
        from tests.crash import run
        run.MEMBERS, run.OPENING, run.UNARMED = ("producer", "worker"), (), 100
        damage = {damage!r}

        class Damaged(run.Round):
            def _kill(self, kills):
                acks = 0
                while acks < 10:  # so that there is something to lose
                    time.sleep(0.05)
                    ledgers = [path.read_text() for path in self._folder.glob("worker*.ledger")]
                    acks = sum(text.count('"verb": "ack"') for text in ledgers)
                super()._kill(kills)

            def _drain(self):
                super()._drain()
                if damage:
                    database = sqlite3.connect(self._folder / "store" / "localqueue.db")
                    with database:
                        database.execute(damage)
                    database.close()

        seen = Damaged(Path({str(tmp_path)!r}), random.Random(1), Counter())
        seen.run(2)
        print("\\n".join(seen.problems))
        """
    )
    if problem is None:
        assert told.strip() == ""
    else:
        assert problem in told


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
