"""Full disks and I/O errors at every write: a clear error, nothing half done, and on it goes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import shim

#: What is done, and how much of its state must then be either as before or as it should be.
WORK = {
    "put": "queue.put('new')",
    "put with everything": "queue.put('n', job_id='n', group_id='g', priority=3, headers={'a': 1})",
    "put_many": "queue.put_many(range(50))",
    "large": "queue.put('x' * 30_000)",
    "get": "queue.get_nowait()",
    "exchange": "queue.exchange([Settle(job, 'ack'), Settle(other, 'nack')], 2)",
    "ack": "queue.ack(job, result='r')",
    "nack": "queue.nack(job, last_error='e')",
    "fail": "queue.fail(job, 'e')",
    "release": "queue.release(job)",
    "extend_lease": "queue.extend_lease(job, 10_000)",
    "retry_failed": "queue.retry_failed(failed.id)",
    "cancel": "queue.cancel(waiting)",
    "purge": "queue.purge(0)",
    "pause": "queue.pause()",
}
#: Everything is done on a new store each time, with the n-th call failing, until none fails.
EVERY_CALL = """
import itertools, shutil
from django_localqueue.types import STATES, JobFilter, Settle

def scene():
    global queue, job, other, failed, waiting
    queue = SimpleQueue(folder, durability=DURABILITY)
    acked, failed, job, other = queue.put_many(range(4)) and queue.get_many(4)
    queue.ack(acked)
    queue.fail(failed)
    waiting = queue.put('waiting')
    queue.put('behind', group_id='g')

def state():
    records = [r for s in STATES for r in queue.list(JobFilter(state=s), limit=200).records]
    return [
        (r.payload, r.state, r.attempts, r.reason,
         r.state == 'processing' and r.lease_expires_at - r.started_at > 5_000_000_000,
         len(queue.lookup(r.id).history), r.max_retries, r.error and r.error.message)
        for r in sorted(records, key=lambda r: r.created_at)
    ] + [queue.stats().paused]

for nth in itertools.count():
    scene()
    before = state()
    fail('localqueue.db', WRITE | TRUNCATE, skip=nth, error=ERROR, torn=nth % 2)
    raised = None
    try:
        WORK
    except exceptions.NotStored as error:
        raised = error
    met = heal()
    if raised is None:
        assert state() != before, 'it was not done'
    else:
        assert type(raised).__name__ == EXPECTED, repr(raised)
        assert 'localqueue.db' in str(raised), raised
        assert state() == before, (before, state())
        WORK  # as if nothing had been
        assert state() != before
    queue.close()
    assert SimpleQueue(folder).put('after')
    queue = None
    if met <= nth:
        break
    shutil.rmtree(folder)
print(nth)
"""


@shim.needed
@pytest.mark.parametrize(
    ("error", "expected", "durability"),
    [("errno.ENOSPC", "StoreFull", "full"), ("errno.EIO", "StoreUnavailable", "normal")],
)
@pytest.mark.parametrize("work", WORK)
def test_an_error_at_any_write_changes_nothing_and_is_said(
    work: str, error: str, expected: str, durability: str, tmp_path: Path
) -> None:
    code = EVERY_CALL.replace("WORK", WORK[work]).replace("ERROR", error, 1)
    code = code.replace("EXPECTED", repr(expected)).replace("DURABILITY", repr(durability), 1)
    assert int(shim.run(tmp_path / "store", code)) > 0, "no call failed"


@shim.needed
def test_a_store_that_cannot_be_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    shim.run(
        tmp_path / "store",
        """
        import itertools, shutil
        for nth in itertools.count():
            fail('localqueue.db', WRITE | TRUNCATE | SYNC, skip=nth, error=errno.ENOSPC)
            try:
                SimpleQueue(folder).close()
            except (exceptions.StoreFull, exceptions.StoreUnavailable) as error:
                assert 'localqueue.db' in str(error)
            met = heal()
            queue = SimpleQueue(folder)
            queue.put('after')
            assert queue.get_nowait().data == 'after'
            queue.close()
            shutil.rmtree(folder)
            if met <= nth:
                break
        assert nth > 5, nth
        """,
    )


@shim.needed
def test_a_read_error_is_said_and_passes(tmp_path: Path) -> None:
    shim.run(
        tmp_path / "store",
        """
        queue = SimpleQueue(folder)
        queue.put('there')
        queue.close()
        with failing('localqueue.db', OPEN, count=-1):
            try:
                SimpleQueue(folder).get_nowait()
            except exceptions.StoreUnavailable as error:
                assert 'localqueue.db' in str(error), error
            else:
                sys.exit('nothing was raised')
        assert SimpleQueue(folder).get_nowait().data == 'there'
        """,
    )


@shim.needed
def test_whichever_write_to_the_log_fails_what_was_stored_is_there(tmp_path: Path) -> None:
    shim.run(
        tmp_path / "store",
        """
        import shutil
        for nth in range(30, 130):
            queue = SimpleQueue(folder)
            fail('-wal', WRITE, skip=nth, torn=nth % 2)
            stored = 0
            for number in range(40):
                try:
                    queue.put(number)
                except exceptions.NotStored:
                    continue
                stored += 1
            assert heal() > nth
            assert queue.stats().ready == stored
            queue.close()
            queue = SimpleQueue(folder)
            assert queue.stats().ready == stored
            queue.close()
            shutil.rmtree(folder)
        """,
    )


@shim.needed
def test_a_log_that_cannot_be_given_room_ahead_stores_all_the_same(tmp_path: Path) -> None:
    shim.run(
        tmp_path / "store",
        """
        import shutil
        for error in (errno.EIO, errno.ENOSPC):
            for torn in (False, True):
                queue = SimpleQueue(folder)
                fail('-wal', APPEND, count=-1, error=error, torn=torn)
                stored = 0
                while not seen() or stored < 100:  # beside whoever makes room
                    queue.put(stored)
                    stored += 1
                assert heal() == 1  # where there is none it isn't tried again
                assert queue.stats().ready == stored
                queue.close()
                queue = SimpleQueue(folder)
                assert queue.stats().ready == stored
                queue.close()
                shutil.rmtree(folder)
        """,
    )


@shim.needed
def test_a_worker_waits_out_a_full_disk(tmp_path: Path) -> None:
    shim.run(
        tmp_path / "store",
        """
        import logging
        from django_localqueue import Worker
        lines = []

        class Lines(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())

        logging.getLogger('django_localqueue').addHandler(Lines())
        queue = SimpleQueue(folder)
        queue.put_many(range(3))
        done = []
        worker = Worker(queue, lambda job: done.append(job.data))
        fail('localqueue.db', WRITE, count=-1, error=errno.ENOSPC)
        running = threading.Thread(target=worker.run)
        running.start()
        import time
        deadline = time.monotonic() + 60
        while not any('full' in line for line in lines) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not done
        heal()
        while queue.stats().acked < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.stop()
        running.join(60)
        assert sorted(done) == [0, 1, 2], done
        assert len([line for line in lines if 'full' in line]) < 20, lines
        """,
    )


# ---- a disk that really is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system can't be mounted here (it takes root)")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


FILL = """
import os, sys
from django_localqueue import SimpleQueue, exceptions
from django_localqueue.types import Settle
queue = SimpleQueue(sys.argv[1] + '/store')
queue.put_many(['x' * 1000] * 2000)
queue.exchange([Settle(job, 'ack') for job in queue.get_many(1000)], 0)
queue.purge(0)  # leaves free pages in the file, as a queue has that is in use
queue.close()
queue = SimpleQueue(sys.argv[1] + '/store')
filler = os.open(sys.argv[1] + '/filler', os.O_CREAT | os.O_WRONLY)

def fill(spare):
    try:
        while True:
            os.write(filler, b'x' * 4096)
    except OSError:
        os.ftruncate(filler, os.fstat(filler).st_size - spare)
"""


def on_disk(disk: Path, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL + code, str(disk)],
        cwd=shim.ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_others_filled_the_disk_jobs_are_still_done_and_purged(small_disk: Path) -> None:
    on_disk(
        small_disk,
        """
fill(256 * 1024)
for _ in range(200):  # far more log than there is room for
    queue.ack(queue.get_nowait())
assert queue.purge(0) == 200
""",
    )


def test_puts_on_a_full_disk_are_refused_until_there_is_room(small_disk: Path) -> None:
    on_disk(
        small_disk,
        """
fill(512 * 1024)
count = 0
try:
    while True:
        queue.put('x' * 1000)
        count += 1
except exceptions.StoreFull as error:
    assert 'is full; free some space' in str(error), error
assert queue.stats().ready == 1000 + count
for refused in (lambda: queue.put('x' * 100_000), queue.vacuum):
    try:
        refused()
    except exceptions.StoreFull as error:
        assert 'is full' in str(error)
    else:
        sys.exit('it was not refused')
assert queue.stats().ready == 1000 + count
os.ftruncate(filler, 0)
queue.put('after')
queue.vacuum()
queue.ack(queue.get_nowait())
assert queue.purge(0) == 1
assert queue.stats().ready == 1000 + count
queue.close()
import sqlite3
database = sqlite3.connect(sys.argv[1] + '/store/localqueue.db')
assert database.execute('PRAGMA integrity_check').fetchone() == ('ok',)
database.close()
""",
    )
