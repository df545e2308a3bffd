"""Wall clocks that step, in one process or in all, and machines and processes that were asleep."""

from __future__ import annotations

import signal
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from django_localqueue import LeaseExpired, SimpleQueue, _native
from tests.contract.helpers import PATIENCE
from tests.contract.processes import Processes
from tests.crash import shim

DAY = 86_400
BOTH_WAYS = pytest.mark.parametrize("step", [DAY, -DAY], ids=["a day forth", "a day back"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def run(store: Path, code: str, step: int) -> None:
    shim.run(store, "import time\nSTEP = " + str(step) + "\n" + textwrap.dedent(code))


@shim.needed
class TestOneProcess:
    """Its wall clock is off, or steps; others on the same store have the right one."""

    @BOTH_WAYS
    def test_ids_rise_and_order_stays(self, step: int, store: Path) -> None:
        run(
            store,
            """
            queue = SimpleQueue(folder)
            queue.put(0)
            child = os.fork()
            if child == 0:
                step_wall_clock(STEP)
                queue.put(1)
                queue.put(2, group_id='g')
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            queue.put(3)
            queue.put(4, group_id='g')
            jobs = []
            for _ in range(5):
                jobs += queue.get_many(1)
                queue.ack(jobs[-1])
            assert [job.data for job in jobs] == [0, 1, 2, 3, 4], jobs
            numbers = [int(job.id) for job in jobs]
            assert numbers == sorted(numbers)
            """,
            step,
        )

    @BOTH_WAYS
    def test_a_lease_is_neither_shorter_nor_longer_for_it(self, step: int, store: Path) -> None:
        run(
            store,
            """
            queue = SimpleQueue(folder, lease_seconds=600)
            queue.put('long')
            queue.put('short')
            child = os.fork()
            if child == 0:
                step_wall_clock(STEP)
                queue.get_nowait()
                queue.get(block=False, lease_seconds=0.5)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            began = time.monotonic()
            again = queue.get(timeout=20)
            assert again.data == 'short', again
            assert time.monotonic() - began < 15
            assert queue.get_many(1) == []
            """,
            step,
        )

    @BOTH_WAYS
    def test_a_lease_goes_on_through_a_step(self, step: int, store: Path) -> None:
        run(
            store,
            """
            queue = SimpleQueue(folder, lease_seconds=600)
            queue.put(1)
            job = queue.get_nowait()
            step_wall_clock(STEP)
            assert queue.stats().expired == 0
            assert queue.get_many(1) == []
            queue.extend_lease(job, 900)
            queue.ack(job)
            assert queue.stats().acked == 1
            """,
            step,
        )

    def test_a_delay_ends_when_the_wall_clock_has_come_there(self, store: Path) -> None:
        run(
            store,
            """
            queue = SimpleQueue(folder)
            queue.put('tomorrow', delay=STEP)
            assert queue.get_many(1) == []
            step_wall_clock(STEP + 1)
            assert queue.get_nowait().data == 'tomorrow'
            """,
            DAY,
        )

    def test_a_delay_waits_longer_where_the_wall_clock_was_set_back(self, store: Path) -> None:
        run(
            store,
            """
            queue = SimpleQueue(folder)
            queue.put('soon', delay=0.2)
            step_wall_clock(-STEP)
            time.sleep(0.5)
            assert queue.get_many(1) == []
            step_wall_clock(STEP)
            assert queue.get(timeout=20).data == 'soon'
            """,
            DAY,
        )


class TestAllProcesses:
    """The machine's clock steps: for every process at once."""

    @BOTH_WAYS
    def test_leases_and_order_stay_and_delays_follow(self, step: int, store: Path) -> None:
        clock = _native.ManualClock()
        with SimpleQueue(store, lease_seconds=60, clock=clock) as queue:
            queue.put("first")
            queue.put("later", delay=3600)
            held = queue.get_nowait()
            clock.step_wall(step)
            queue.put("second")
            queue.put("third")
            clock.advance(59)
            assert queue.stats().expired == 0
            queue.ack(held)
            due = ["later"] if step > 0 else []
            # What came due meanwhile has the place of its due time, before what was put after it.
            assert [job.data for job in queue.get_many(9)] == [*due, "second", "third"]

    def test_a_lease_of_before_a_restart_of_the_machine_has_lapsed(self, store: Path) -> None:
        clock = _native.ManualClock()
        with SimpleQueue(store, lease_seconds=3600, clock=clock) as queue:
            queue.put(1)
            queue.get_nowait()
        clock.step_wall(-DAY)
        clock.reboot()
        with SimpleQueue(store, clock=clock) as queue:
            assert queue.get_nowait().attempts == 2


class TestAsleep:
    def test_time_asleep_counts_for_leases_and_delays(self, store: Path) -> None:
        """CLOCK_BOOTTIME and the wall clock both go on while a machine is suspended."""
        clock = _native.ManualClock()
        with SimpleQueue(store, lease_seconds=60, clock=clock) as queue:
            queue.put("held")
            held = queue.get_nowait()
            queue.put("due meanwhile", delay=600)
            clock.advance(8 * 3600)  # the lid was shut
            with pytest.raises(LeaseExpired):
                queue.ack(held)
            assert {job.data for job in queue.get_many(9)} == {"held", "due meanwhile"}

    @pytest.fixture
    def processes(self, store: Path) -> Iterator[Processes]:
        with ExitStack() as stack:
            yield Processes(store, stack)

    def test_a_stopped_process_loses_its_lease_and_is_told_so(
        self, processes: Processes, store: Path
    ) -> None:
        with SimpleQueue(store) as queue:
            queue.put("taken over")
            sleeper = processes.start(
                """
                queue = SimpleQueue(folder, lease_seconds=0.5)
                job = queue.get()
                say("has it")
                sys.stdin.readline()
                try:
                    queue.ack(job)
                except LeaseExpired as error:
                    say(error.reason)
                """
            )
            sleeper.hear()
            sleeper.popen.send_signal(signal.SIGSTOP)
            job = queue.get(timeout=PATIENCE)
            sleeper.popen.send_signal(signal.SIGCONT)
            sleeper.tell()
            assert sleeper.hear() == "expired"
            queue.ack(job)
            assert queue.stats().acked == 1

    def test_a_stopped_process_that_waits_gets_what_came_due_meanwhile(
        self, processes: Processes, store: Path
    ) -> None:
        with SimpleQueue(store) as queue:
            sleeper = processes.start("say('waits'); say(SimpleQueue(folder).get().data)")
            sleeper.hear()
            sleeper.wait_until_asleep()
            sleeper.popen.send_signal(signal.SIGSTOP)
            queue.put("due", delay=0.3)
            time.sleep(0.6)
            sleeper.popen.send_signal(signal.SIGCONT)
            assert sleeper.hear() == "due"

    def test_a_stopped_process_holds_up_nobody(self, processes: Processes, store: Path) -> None:
        """Unless it was stopped amid a transaction: then others wait, up to their busy_timeout."""
        with SimpleQueue(store) as queue:
            sleeper = processes.start("SimpleQueue(folder).put(1); say('rests'); sys.stdin.read()")
            sleeper.hear()
            sleeper.popen.send_signal(signal.SIGSTOP)
            for number in range(100):
                queue.put(number)
            assert queue.stats().ready == 101
            sleeper.popen.send_signal(signal.SIGCONT)
