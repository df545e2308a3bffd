"""The write lock among processes: nobody's death keeps the others from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from tests.crash.build import CannotBuild, build

PUTS = 3_000
PUTTING = """
import sys
from pathlib import Path
if sys.argv[2]:
    from tests.crash.build import use
    use(Path(sys.argv[2]))
from django_localqueue import SimpleQueue
queue = SimpleQueue(sys.argv[1], durability="normal")
print("ready", flush=True)
sys.stdin.read()
for n in range(int(sys.argv[3])):
    queue.put(n)
"""


class Putting:
    """A process that puts as fast as it can, once it is told to."""

    def __init__(self, folder: Path, count: int, module: str = "", failpoints: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PUTTING, str(folder), module, str(count)],
            env=os.environ | {"LOCALQUEUE_FAILPOINTS": failpoints},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> int:
        assert self._process.stdout is not None
        code = self._process.wait(90)
        self._process.stdout.close()
        return code


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("shared.waiting=3", id="while it waits"),
        pytest.param("shared.called=1", id="when it is its turn"),
        pytest.param("transact.committed=20", id="while it has it"),
        pytest.param("shared.unlocked=20", id="when it has just given it back"),
    ],
)
def test_a_process_that_dies_holds_nobody_up(failpoint: str, tmp_path: Path) -> None:
    try:
        module = str(build())
    except CannotBuild as error:
        pytest.skip(str(error))
    folder = tmp_path / "store"
    with SimpleQueue(folder, durability="normal") as queue:
        queue.put(0)
        others = [Putting(folder, PUTS) for _ in range(3)]
        dying = Putting(folder, 100 * PUTS, module, failpoint)
        for process in [*others, dying]:
            process.start()
        assert [process.end() for process in others] == [0, 0, 0]
        queue.put(0)
        assert queue.stats().ready >= 3 * PUTS + 2
        assert dying.end() == -9


WAITING = """
import sys
from django_localqueue import SimpleQueue
with SimpleQueue(sys.argv[1], durability="normal") as queue:
    print("ready", flush=True)
    print(queue.get(timeout=60).data, flush=True)
"""


def test_a_put_whose_process_dies_before_it_wakes_anybody_is_got_all_the_same(
    tmp_path: Path,
) -> None:
    try:
        module = str(build())
    except CannotBuild as error:
        pytest.skip(str(error))
    folder = tmp_path / "store"
    with SimpleQueue(folder, durability="normal") as queue:
        queue.put("first")
        queue.ack(queue.get())
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "ready\n"
    # The first transaction opens the store, the second puts.
    dying = Putting(folder, 1, module, "transact.committed=2")
    dying.start()
    assert dying.end() == -9
    assert waiting.communicate(timeout=90)[0] == "0\n"
    assert waiting.returncode == 0
