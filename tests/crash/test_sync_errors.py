"""The disk doesn't confirm what was written: the caller is told, and nobody builds upon it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import shim

pytestmark = shim.needed


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


VERBS = {
    "put": "queue.put('new')",
    "put of a duplicate": "queue.put('again', job_id='one')",
    "put_many": "queue.put_many(['new', 'newer'])",
    "get": "queue.get_nowait()",
    "ack": "queue.ack(job)",
    "ack again": "queue.ack(acked)",
    "nack": "queue.nack(job)",
    "fail": "queue.fail(job)",
    "release": "queue.release(job)",
    "extend_lease": "queue.extend_lease(job, 1000)",
    "retry_failed": "queue.retry_failed(failed.id)",
    "cancel": "queue.cancel(waiting)",
    "purge": "queue.purge(0)",
    "pause": "queue.pause()",
}
#: One job in each state, and the log synced.
SCENE = """
queue = SimpleQueue(folder)
queue.put('first', job_id='one')
queue.put_many(['second', 'third'])
acked, failed, job = queue.get_many(3)
queue.ack(acked)
queue.fail(failed)
waiting = queue.put('waiting')
"""


@pytest.mark.parametrize("verb", VERBS)
def test_the_caller_of_any_verb_is_told_that_it_is_stored_and_may_be_lost(
    verb: str, store: Path
) -> None:
    shim.run(
        store,
        f"""
        {SCENE.replace(chr(10), chr(10) + " " * 8)}
        with failing('-wal', SYNC):
            try:
                {VERBS[verb]}
            except exceptions.StoredNotSynced as error:
                assert 'did not confirm' in str(error), error
                assert os.path.exists(folder + '/localqueue.db-unsynced')
            else:
                sys.exit('nothing was raised')
        # A checkpoint made all of it durable, and the queue goes on.
        queue.put('after')
        assert not os.path.exists(folder + '/localqueue.db-unsynced')
        """,
    )


def test_what_was_told_to_be_stored_is_there(store: Path) -> None:
    shim.run(
        store,
        """
        queue = SimpleQueue(folder)
        with failing('-wal', SYNC):
            try:
                queue.put('stored')
            except exceptions.StoredNotSynced:
                pass
        assert queue.get_nowait().data == 'stored'
        """,
    )


def test_nothing_is_stored_until_a_checkpoint_brought_the_log_in(store: Path) -> None:
    shim.run(
        store,
        """
        queue = SimpleQueue(folder)
        queue.put('first')
        with failing('-wal', SYNC):
            try:
                queue.put('unsynced')
            except exceptions.StoredNotSynced:
                pass
        # Nor can the database itself be synced, so that the checkpoint fails.
        with failing('localqueue.db', SYNC, count=-1):
            for _ in range(3):
                try:
                    queue.put('refused')
                except exceptions.StoreUnavailable:
                    pass
                else:
                    sys.exit('stored upon a log that nobody can trust')
        assert os.path.exists(folder + '/localqueue.db-unsynced')
        queue.put('after')
        assert [job.data for job in queue.get_many(9)] == ['first', 'unsynced', 'after']
        """,
    )


def test_all_threads_that_waited_for_a_sync_are_told(store: Path) -> None:
    shim.run(
        store,
        """
        queue = SimpleQueue(folder)
        told = []

        def put(number):
            try:
                queue.put(number)
            except exceptions.StoredNotSynced:
                told.append(number)

        with failing('-wal', SYNC):
            threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert told
        assert sorted(job.data for job in queue.get_many(9)) == list(range(8))
        """,
    )


OTHER = """
import subprocess
other = subprocess.Popen(
    [sys.executable, '-c', '''
import sys
from django_localqueue import SimpleQueue, exceptions
queue = SimpleQueue(sys.argv[1])
for line in sys.stdin:
    try:
        queue.put(line.strip())
        print("stored", flush=True)
    except exceptions.LocalQueueError as error:
        print(type(error).__name__, flush=True)
    ''', folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    env={**os.environ, 'SHIM_FAIL': OTHERS_FAULT},
)

def other_puts(text):
    other.stdin.write(text + '\\n')
    other.stdin.flush()
    return other.stdout.readline().strip()
"""
FAIL_ONCE = """
with failing('-wal', SYNC):
    try:
        queue.put('unsynced')
    except exceptions.StoredNotSynced:
        pass
"""


def test_a_process_that_has_the_store_open_checkpoints_before_it_goes_on(store: Path) -> None:
    shim.run(
        store,
        "queue = SimpleQueue(folder)\nOTHERS_FAULT = ''\n"
        + OTHER
        + "assert other_puts('first') == 'stored'\n"
        + FAIL_ONCE
        + """
assert other_puts('second') == 'stored'
assert not os.path.exists(folder + '/localqueue.db-unsynced')
assert os.path.getsize(folder + '/localqueue.db') > 4096
other.stdin.close()
assert other.wait(20) == 0
""",
    )


def test_a_process_that_cannot_checkpoint_stores_nothing(store: Path) -> None:
    # After its own first put, no sync of the database goes well in the other process.
    shim.run(
        store,
        "OTHERS_FAULT = 'localqueue.db,2,1,-1,5,0'\n"
        + "queue = SimpleQueue(folder)\nqueue.put('there')\n"
        + OTHER
        + "assert other_puts('first') == 'stored'\n"
        + FAIL_ONCE
        + """
assert other_puts('second') == 'StoreUnavailable'
assert os.path.exists(folder + '/localqueue.db-unsynced')
other.stdin.close()
assert other.wait(20) == 0
queue.put('third')
assert [job.data for job in queue.get_many(9)] == ['there', 'first', 'unsynced', 'third']
""",
    )


def test_normal_promises_no_sync_and_asks_for_none(store: Path) -> None:
    shim.run(
        store,
        """
        queue = SimpleQueue(folder, durability='normal')
        queue.put('first')
        fail('-wal', SYNC)
        queue.put('second')
        assert heal() == 0
        """,
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_mark_is_not_taken_away_by_a_death(when: str, store: Path) -> None:
    """The process that should checkpoint is killed in it: the next one does."""
    death = {
        "before": "fail('localqueue.db', SYNC, error=DIE)",
        "after": "fail('-unsynced', UNLINK, error=DIE)",
    }[when]
    shim.run(
        store,
        f"""
        import signal

        def child(data):
            pid = os.fork()
            if pid == 0:
                queue = SimpleQueue(folder)
                if data == 'unsynced':
                    fail('-wal', SYNC, skip=1)
                try:
                    queue.put('made the queue')
                    queue.put(data)
                finally:
                    os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert child('unsynced') == 0
        {death}
        assert child('more') == -signal.SIGKILL
        heal()
        assert os.path.exists(folder + '/localqueue.db-unsynced')
        again = SimpleQueue(folder)
        again.put('after')
        assert not os.path.exists(folder + '/localqueue.db-unsynced')
        there = [job.data for job in again.get_many(9)]
        assert there == ['made the queue', 'unsynced', 'after'], there
        """,
    )
