"""Files that are damaged, removed, replaced or copied, and other programs that use them."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from django_localqueue.exceptions import (
    LocalQueueError,
    StoreBusy,
    StoreCorrupt,
    StoredNotSynced,
    StoreUnavailable,
)
from tests.contract.helpers import PATIENCE, InThread
from tests.contract.processes import HOLD_THE_WRITE_LOCK, Processes
from tests.crash import scan

FULL_TABLE = 200
#: Another program that reads in a transaction until it is told to end.
READ = """
import sqlite3
connection = sqlite3.connect(os.path.join(folder, "localqueue.db"))
connection.execute("BEGIN")
say(connection.execute("SELECT count(*) FROM messages").fetchone())
sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def processes(folder: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(folder, stack)


def database(folder: Path) -> Path:
    return folder / "localqueue.db"


def made(folder: Path) -> Path:
    """Make a store with some jobs, all of them in the database file."""
    with SimpleQueue(folder) as queue:
        queue.put_many(["x" * 500] * FULL_TABLE)
        for job in queue.get_many(20):
            queue.ack(job)
    assert not Path(f"{database(folder)}-wal").exists()
    return database(folder)


class TestDamage:
    @pytest.mark.parametrize("size", [2, 99, 100, 511, 4096, 4097, 12_288])
    def test_a_truncated_file_is_said_to_be_damaged_and_left_as_it_is(
        self, size: int, folder: Path
    ) -> None:
        file = made(folder)
        os.truncate(file, size)
        before = file.read_bytes()
        with pytest.raises(StoreCorrupt, match=r"localqueue\.db is damaged"):
            use(folder)
        assert file.read_bytes() == before

    @pytest.mark.parametrize("size", [0, 1])
    def test_a_file_cut_to_nothing_is_a_new_store(self, size: int, folder: Path) -> None:
        """SQLite takes an empty file for a new database, and nothing tells one from the other."""
        os.truncate(made(folder), size)
        with SimpleQueue(folder) as queue:
            assert queue.stats().ready == 0

    def test_noise_anywhere_raises_no_error_but_those_of_a_queue(self, folder: Path) -> None:
        file = made(folder)
        sound = file.read_bytes()
        rng = random.Random(7)
        seen = set()
        for _ in range(60):
            content = bytearray(sound)
            at = rng.randrange(len(content))
            noise = rng.randbytes(rng.choice([1, 16, 4096]))
            content[at : at + len(noise)] = noise
            file.write_bytes(content[: len(sound)])
            for beside in ("-wal", "-shm"):
                Path(f"{file}{beside}").unlink(missing_ok=True)
            try:
                use(folder)
            except LocalQueueError as error:
                seen.add(type(error).__name__)
        # The rest was noise where SQLite doesn't look, or inside a payload.
        assert "StoreCorrupt" in seen

    def test_a_queue_whose_file_is_damaged_while_it_is_open_says_so(self, folder: Path) -> None:
        made(folder)
        with SimpleQueue(folder) as queue:
            with database(folder).open("r+b") as file:
                file.seek(4096)
                file.write(os.urandom(8 * 4096))
            with pytest.raises(StoreCorrupt, match="restore a backup"):
                until_it_raises(lambda: queue.ack(queue.get_nowait()))
            with pytest.raises(StoreCorrupt):
                until_it_raises(lambda: queue.put("not upon this"))

    def test_a_worker_on_a_damaged_file_ends_with_an_error_that_says_what(
        self, folder: Path
    ) -> None:
        file = made(folder)
        with file.open("r+b") as content:
            content.seek(4096)
            content.write(b"\xff" * (file.stat().st_size - 4096))
        code = (
            "import sys; from django_localqueue import SimpleQueue, Worker;"
            "Worker(SimpleQueue(sys.argv[1]), print).run()"
        )
        command = [sys.executable, "-c", code, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode != 0
        assert "localqueue.db is damaged" in done.stderr

    def test_a_torn_end_of_the_log_is_passed_over(self, folder: Path, processes: Processes) -> None:
        writer = processes.start(
            "queue = SimpleQueue(folder)\n"
            "say([queue.put(number) for number in range(3)])\nsys.stdin.readline()"
        )
        told = writer.hear()
        writer.kill()
        with Path(f"{database(folder)}-wal").open("ab") as log:
            log.write(os.urandom(3000))
        with SimpleQueue(folder) as queue:
            assert [job.id for job in queue.get_many(9)] == told

    def test_a_flipped_bit_in_a_payload_is_not_noticed_by_sqlite(self, folder: Path) -> None:
        """Not promised: SQLite has no checksums of pages."""
        file = made(folder)
        content = file.read_bytes()
        at = content.rindex(b"xxxx")
        file.write_bytes(content[:at] + b"y" + content[at + 1 :])
        assert list(scan.faults(file)) == []


def until_it_raises(act: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        act()


def use(folder: Path) -> None:
    """Do to a store whatever may meet its damage."""
    with SimpleQueue(folder, busy_timeout=0.5, durability="normal") as queue:
        for _ in range(FULL_TABLE):
            jobs = queue.get_many(50)
            for job in jobs:
                queue.ack(job)
            if not jobs:
                break
        queue.put_many(["new"] * 50)
        queue.stats()
        queue.list_failed()
        queue.purge(0)


class TestRemoved:
    @pytest.mark.parametrize("durability", ["full", "normal"])
    def test_a_removed_file_is_said_and_not_made_again(self, durability: str, folder: Path) -> None:
        with SimpleQueue(folder, durability=durability) as queue:
            queue.put("there")
            database(folder).unlink()
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                until_it_raises(lambda: queue.put("nowhere"))
            for act in (lambda: queue.put("nowhere"), queue.get_nowait, queue.stats):
                with pytest.raises(StoreUnavailable, match=r"localqueue\.db"):
                    act()
            assert not database(folder).exists()

    def test_a_get_that_waits_on_a_removed_file_says_so(self, folder: Path) -> None:
        with SimpleQueue(folder) as queue:
            queue.put(1)
            queue.ack(queue.get_nowait())
            waiting = InThread(queue.get)
            waiting.wait_until_asleep()
            database(folder).unlink()
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                waiting.outcome()

    def test_a_removed_folder_is_said(self, folder: Path) -> None:
        with SimpleQueue(folder) as queue:
            queue.put("there")
            shutil.rmtree(folder)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                until_it_raises(lambda: queue.put("nowhere"))

    def test_a_new_queue_begins_a_new_file(self, folder: Path) -> None:
        with SimpleQueue(folder) as queue:
            queue.put("there")
            shutil.rmtree(folder)
        with SimpleQueue(folder) as queue:
            queue.put("new")
            assert [job.data for job in queue.get_many(9)] == ["new"]

    def test_after_a_replacement_the_queue_says_so_and_uses_the_new_file(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with SimpleQueue(tmp_path / "other") as other:
            other.put("of the other")
        with SimpleQueue(folder) as queue:
            queue.put("of the first")
            for beside in ("-wal", "-shm"):
                Path(f"{database(folder)}{beside}").unlink()
            database(tmp_path / "other").replace(database(folder))
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                until_it_raises(lambda: queue.put("between"))
            # Its connections to the file that went are closed without harm to the new one.
            assert "of the other" in {job.data for job in queue.get_many(9)}
        assert list(scan.faults(database(folder))) == []

    def test_a_log_that_is_removed_is_said_and_loses_nothing(self, folder: Path) -> None:
        with SimpleQueue(folder) as queue:
            queue.put("first")
            Path(f"{database(folder)}-wal").unlink()
            with pytest.raises(StoredNotSynced, match="replaced or removed its log"):
                queue.put("second")
            queue.put("third")
            assert [job.data for job in queue.get_many(9)] == ["first", "second", "third"]
        assert list(scan.faults(database(folder))) == []


class TestOtherPrograms:
    def test_a_lock_that_is_held_for_long_ends_waits_only_at_their_timeout(
        self, processes: Processes, folder: Path
    ) -> None:
        with SimpleQueue(folder) as patient:
            patient.put("there")
            holder = processes.start(HOLD_THE_WRITE_LOCK)
            holder.hear()
            hasty = processes.start(
                """
                from django_localqueue.exceptions import StoreBusy
                began = time.monotonic()
                try:
                    SimpleQueue(folder, busy_timeout=0.3).put("too late")
                except StoreBusy as error:
                    say([str(error), time.monotonic() - began])
                """
            )
            waiting = InThread(lambda: patient.put("in time"))
            text, seconds = hasty.hear()
            assert "localqueue.db was not free within" in text
            assert seconds >= 0.3
            assert waiting.is_alive()
            holder.tell()
            waiting.outcome()
            assert [job.data for job in patient.get_many(9)] == ["there", "in time"]

    def test_another_program_that_reads_keeps_nobody_waiting(
        self, processes: Processes, folder: Path
    ) -> None:
        with SimpleQueue(folder, busy_timeout=0.3) as queue:
            queue.put("there")
            reader = processes.start(READ)
            assert reader.hear() == [1]
            for number in range(300):
                queue.put(number)
                queue.ack(queue.get_nowait())
            reader.tell()
            assert queue.stats().acked == 300

    def test_programs_that_take_the_lock_now_and_then_cost_time_and_no_job(
        self, processes: Processes, folder: Path
    ) -> None:
        made(folder)
        foreign = processes.start(
            """
            import sqlite3
            connection = sqlite3.connect(
                os.path.join(folder, "localqueue.db"), isolation_level=None, timeout=60
            )
            ending = threading.Thread(target=sys.stdin.readline)
            ending.start()
            say("holds")
            while ending.is_alive():
                connection.execute("BEGIN IMMEDIATE")
                time.sleep(0.15)
                connection.execute("ROLLBACK")
                time.sleep(0.02)
            connection.close()
            """
        )
        foreign.hear()
        putting = [
            processes.start(
                "queue = SimpleQueue(folder, 'busy')\n"
                "for number in range(15):\n    queue.put(number)\nsay('put')"
            )
            for _ in range(2)
        ]
        working = [
            processes.start(
                """
                queue, done = SimpleQueue(folder, 'busy'), 0
                while True:
                    job = queue.get()
                    queue.ack(job)
                    if job.data == "stop":
                        break
                    done += 1
                say(done)
                """
            )
            for _ in range(3)
        ]
        assert [process.hear() for process in putting] == ["put", "put"]
        with SimpleQueue(folder, "busy") as queue:
            for _ in working:
                queue.put("stop", priority=-100)
            assert sum(process.hear() for process in working) == 30
            assert queue.stats().acked == 30 + len(working)
        foreign.tell()
        foreign.end()

    def test_a_log_that_a_reader_made_long_is_used_anew_once_the_reader_has_gone(
        self, processes: Processes, folder: Path
    ) -> None:
        log = Path(f"{database(folder)}-wal")
        page = "x" * 20_000
        with SimpleQueue(folder, durability="normal", max_payload_bytes=1 << 24) as queue:
            queue.put("there")
            reader = processes.start(READ)
            reader.hear()
            for _ in range(12):  # more than a log holds that is checkpointed
                queue.put_many([page] * 100)
            long = log.stat().st_size
            assert long > 20_000_000
            reader.tell()
            reader.end()
            for _ in range(30):  # 60 MB
                queue.put_many([page] * 100)
            assert log.stat().st_size <= long + 30_000_000
        assert not log.exists()

    @pytest.mark.parametrize("mode", ["RESTART", "TRUNCATE", "FULL"])
    def test_a_checkpoint_of_another_program_loses_nothing(
        self, mode: str, processes: Processes, folder: Path
    ) -> None:
        with SimpleQueue(folder) as queue:
            queue.put("first")
            other = processes.start(
                f"""
                import sqlite3
                connection = sqlite3.connect(os.path.join(folder, "localqueue.db"))
                for _ in range(50):
                    connection.execute("PRAGMA wal_checkpoint({mode})").fetchone()
                say("done")
                """
            )
            told = [queue.put(number) for number in range(200)]
            assert other.hear() == "done"
            told += [queue.put(number) for number in range(200)]
            assert queue.stats().ready == len(told) + 1

    def test_an_exclusive_lock_on_the_database_is_waited_for(
        self, processes: Processes, folder: Path
    ) -> None:
        made(folder)
        holder = processes.start(
            """
            import sqlite3
            connection = sqlite3.connect(os.path.join(folder, "localqueue.db"))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN IMMEDIATE")
            say("held")
            sys.stdin.readline()
            connection.rollback()
            connection.close()
            """
        )
        holder.hear()
        with pytest.raises(StoreBusy, match="was not free within"):
            SimpleQueue(folder, busy_timeout=0.3).put("refused")
        holder.tell()
        holder.end()
        with SimpleQueue(folder) as queue:
            queue.put("after")

    def test_a_copy_of_all_files_of_a_store_at_rest_is_a_store(
        self, folder: Path, tmp_path: Path, processes: Processes
    ) -> None:
        writer = processes.start(
            "queue = SimpleQueue(folder)\n"
            "say([queue.put(n) for n in range(9)])\n"
            "sys.stdin.readline()"
        )
        told = writer.hear()
        writer.kill()  # the log is there, and nobody writes
        shutil.copytree(folder, tmp_path / "copy")
        for each in (folder, tmp_path / "copy"):
            with SimpleQueue(each) as queue:
                assert [job.id for job in queue.get_many(99)] == told

    def test_a_copy_without_its_log_is_an_older_state_and_sound(
        self, folder: Path, tmp_path: Path, processes: Processes
    ) -> None:
        """Not promised to be new: what stood in the log isn't in the copy. Back up by `backup`."""
        made(folder)
        writer = processes.start(
            "queue = SimpleQueue(folder)\nsay(queue.put('in the log'))\nsys.stdin.readline()"
        )
        writer.hear()
        writer.kill()
        (tmp_path / "copy").mkdir()
        shutil.copy(database(folder), tmp_path / "copy")
        with SimpleQueue(tmp_path / "copy") as queue:
            assert queue.stats().ready == FULL_TABLE - 20
        assert list(scan.faults(database(tmp_path / "copy"))) == []


READ_ONLY = """
import json, sys
from django_localqueue import SimpleQueue
from django_localqueue.exceptions import LocalQueueError
try:
    with SimpleQueue(sys.argv[1]) as queue:
        queue.put("x")
except LocalQueueError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A store on a file system that can only be read."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system can't be mounted here (it takes root)")
    made(disk / "store")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    yield disk / "store"
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("what", ["store", "new"])
def test_a_read_only_file_system_is_said(what: str, read_only: Path) -> None:
    command = [sys.executable, "-c", READ_ONLY, str(read_only.parent / what)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    name, text = json.loads(done.stdout)
    assert name == "StoreUnavailable"
    assert str(read_only.parent / what) in text
    assert "Read-only file system" in text
