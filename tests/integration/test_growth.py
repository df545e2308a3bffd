"""Neither the file nor its log nor the process grows with the jobs that have come and gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import alone

#: The log is brought in from 4,000 pages on, by whoever commits from three times that; a batch
#: may come on top.
LONGEST_LOG = 4 * 4_000 * 4_120


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    """Sizes after each of ten rounds of 2,000 jobs that are put, acked and purged."""
    answer: dict[str, Any] = alone.run("steady", tmp_path_factory.mktemp("steady"), 20_000)
    sizes: list[dict[str, int]] = answer["rounds"]
    assert len(sizes) == 10
    return sizes


def test_the_file_stays_as_large_as_what_is_in_it(rounds: list[dict[str, int]]) -> None:
    assert rounds[-1]["file"] <= 1.2 * max(size["file"] for size in rounds[:5])


def test_the_log_stays_bounded(rounds: list[dict[str, int]]) -> None:
    assert max(size["log"] for size in rounds) < LONGEST_LOG


def test_the_memory_stays_as_it_was(rounds: list[dict[str, int]]) -> None:
    assert rounds[-1]["memory"] - rounds[1]["memory"] < 4_000_000


def test_nothing_is_kept_of_a_purged_job(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = alone.run("steady", tmp_path / "few", 10_000)["rounds"][-1]["file"]
    many = alone.run("steady", tmp_path / "many", 40_000)["rounds"][-1]["file"]
    assert many < 2 * few
