"""Processes that end: killed amid their work, by a signal, or with a thread that waits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from tests.contract.helpers import PATIENCE, wait_for_sleep
from tests.contract.processes import HOLD_THE_WRITE_LOCK, Processes


class TestDeath:
    def test_a_job_of_a_killed_process_is_delivered_again(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put("survivor")
        holder = processes.start(
            """
            job = SimpleQueue(folder, lease_seconds=1).get(worker="doomed")
            say(job.receipt)
            sys.stdin.readline()
            """
        )
        receipt = holder.hear()
        holder.kill()
        job = queue.get(timeout=PATIENCE)
        assert (job.data, job.attempts) == ("survivor", 2)
        assert job.receipt != receipt
        queue.ack(job)
        (lapsed, acked) = queue.lookup(job.id).history  # type: ignore[union-attr]
        assert (lapsed.worker, lapsed.outcome, acked.outcome) == ("doomed", "lapsed", "ack")

    def test_a_killed_processs_lease_holds_until_its_end(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put("held")
        holder = processes.start(
            "say(SimpleQueue(folder, lease_seconds=600).get().id); sys.stdin.readline()"
        )
        holder.hear()
        holder.kill()
        assert queue.get_many(5) == []
        assert queue.stats().processing == 1

    @pytest.mark.parametrize("durability", ["full", "normal"])
    def test_what_was_put_before_a_kill_is_there(
        self, durability: str, processes: Processes
    ) -> None:
        told: list[str] = []
        for _ in range(4):
            writer = processes.start(
                """
                queue = SimpleQueue(folder, durability=sys.argv[2])
                while True:
                    say(queue.put({"some": "data"}))
                """,
                durability,
            )
            told += [writer.hear() for _ in range(40)]
            writer.kill()
        with SimpleQueue(processes.folder, durability=durability) as queue:
            assert all(queue.lookup(id) is not None for id in told)
            queue.put("the lock is free")
        processes.assert_file_is_whole()

    def test_what_was_acked_before_a_kill_never_comes_back(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put_many(range(300))
        acked: list[int] = []
        for _ in range(3):
            worker = processes.start(
                """
                queue = SimpleQueue(folder, lease_seconds=0.001)
                while True:
                    job = queue.get(lease_seconds=60)
                    queue.ack(job)
                    say(job.data)
                """
            )
            acked += [worker.hear() for _ in range(40)]
            worker.kill()
        rest = {job.data for job in queue.get_many(300)}
        assert len(acked) == len(set(acked))
        assert not rest & set(acked)


class TestEnding:
    def test_a_process_ends_though_a_daemon_thread_waits_in_get(self, processes: Processes) -> None:
        process = processes.start(
            """
            queue = SimpleQueue(folder)
            thread = threading.Thread(target=queue.get, daemon=True)
            thread.start()
            say(thread.native_id)
            sys.stdin.readline()
            """
        )
        wait_for_sleep(Path(f"/proc/{process.popen.pid}/task/{process.hear()}/stat"))
        process.tell()
        process.end()

    def test_a_signal_without_a_handler_ends_a_waiting_process(self, processes: Processes) -> None:
        process = processes.start("queue = SimpleQueue(folder); say(0); queue.get()")
        process.hear()
        process.wait_until_asleep()
        process.popen.send_signal(signal.SIGTERM)
        process.end(-signal.SIGTERM)

    def test_a_handler_runs_while_get_waits_and_the_wait_goes_on(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        process = processes.start(
            """
            signal.signal(signal.SIGUSR1, lambda number, frame: say("handled"))
            queue = SimpleQueue(folder)
            say("waiting")
            say(queue.get().data)
            """
        )
        process.hear()
        process.wait_until_asleep()
        process.popen.send_signal(signal.SIGUSR1)
        assert process.hear() == "handled"
        queue.put("after the signal")
        assert process.hear() == "after the signal"

    def test_ctrl_c_gets_through_while_another_process_holds_the_write_lock(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        holder = processes.start(HOLD_THE_WRITE_LOCK)
        holder.hear()
        process = processes.start(
            """
            queue = SimpleQueue(folder, busy_timeout=3600)
            say("putting")
            try:
                queue.put("never")
            except KeyboardInterrupt:
                say("interrupted")
            """
        )
        process.hear()
        process.wait_until_asleep()
        process.popen.send_signal(signal.SIGINT)
        assert process.hear() == "interrupted"
        holder.kill()
        assert queue.stats().ready == 0

    def test_importing_leaves_signal_handlers_as_they_were(self, processes: Processes) -> None:
        process = processes.start(
            """
            import subprocess
            code = (
                "import signal\\n"
                "before = [signal.getsignal(n) for n in signal.valid_signals()]\\n"
                "import django_localqueue._native, django_localqueue.backends.sqlite\\n"
                "print(before == [signal.getsignal(n) for n in signal.valid_signals()])\\n"
            )
            say(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
            """
        )
        assert process.hear() == "True\n"


AS_PID_1 = """
import os, sys
from django_localqueue import SimpleQueue, Worker
Worker(SimpleQueue(sys.argv[1]), lambda job: print(os.getpid(), flush=True)).run()
"""


def test_a_worker_that_is_process_1_ends_when_it_is_asked(tmp_path: Path) -> None:
    """As in a container whose command is the worker itself, without a shell."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("a namespace of processes can't be made here (unshare, as root)")
    with SimpleQueue(tmp_path / "store") as queue:
        queue.put("work")
        worker = subprocess.Popen(
            [*unshare, sys.executable, "-c", AS_PID_1, str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "1\n"
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text()
            os.kill(int(children), signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.communicate()
        assert queue.stats().acked == 1
