"""The benchmarks run and report; how fast anything is, no test asks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ran(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The tables and the results of the smallest run of ours beside plain sqlite3."""
    folder = tmp_path_factory.mktemp("benchmarks")
    results = folder / "results.json"
    command = ["benchmarks", "--only", "ours,sqlite3", "--depths", "20,40"]
    command += ["--beside", "30", "--grouped", "30", "--groups", "5", "--n", "10", "--rounds", "1"]
    command += ["--threads", "2", "--processes", "1:2", "--durability", "normal"]
    command += ["--each", "60", "--drain", "1000", "--waking", "3", "--idle", "0.1"]
    command += ["--dir", str(folder), "--json", str(results)]
    done = ran(*command, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(results.read_text())


def measured(results: dict[str, Any], section: str, contestant: str) -> set[tuple[str, str]]:
    return {
        (row["scenario"], row["verb"])
        for row in results["rows"]
        if (row["section"], row["contestant"]) == (section, contestant)
    }


def test_every_store_is_measured_with_every_verb(run: tuple[str, dict[str, Any]]) -> None:
    scenarios = ("20 ready", "40 ready", "10,000 ready beside 3 x 30", "30 in 5 groups")
    assert measured(run[1], "one process", "ours") == {
        (scenario, verb) for scenario in scenarios for verb in ("put", "get_ack", "exchange")
    }


def test_a_peer_is_measured_with_ready_jobs_only(run: tuple[str, dict[str, Any]]) -> None:
    assert measured(run[1], "one process", "sqlite3") == {
        (scenario, verb) for scenario in ("20 ready", "40 ready") for verb in ("put", "get_ack")
    }


def test_every_time_is_a_positive_number(run: tuple[str, dict[str, Any]]) -> None:
    times = [row["us"] for row in run[1]["rows"] if row["section"] == "one process"]
    assert len(times) == 16
    assert all(math.isfinite(time) and time > 0 for time in times)


def test_ours_alone_is_measured_in_full_stores_waking_and_in_steady_use(
    run: tuple[str, dict[str, Any]],
) -> None:
    rows = {row["section"]: row for row in run[1]["rows"] if row["contestant"] == "ours"}
    assert {"put", "stats", "list, 50 blocked"} <= set(rows["at depth"]["us"])
    assert all(time > 0 for time in rows["at depth"]["us"].values())
    assert [sizes["file"] > 0 for sizes in rows["steady"]["rounds"]] == [True] * 10
    assert rows["waking"]["get"]["max"] > 0


def test_every_job_that_processes_put_is_delivered_once(run: tuple[str, dict[str, Any]]) -> None:
    rows = [row for row in run[1]["rows"] if row["section"] == "processes"]
    assert [(row["contestant"], row["verb"]) for row in rows] == [
        ("ours", "get_ack"),
        ("ours", "exchange"),
        ("sqlite3", "get_ack"),
    ]
    assert run[1]["notes"] == []


def test_the_results_name_the_command_and_the_machine_without_its_paths(
    run: tuple[str, dict[str, Any]],
) -> None:
    tables, results = run
    assert results["command"].startswith("python -m benchmarks --only ours,sqlite3")
    assert set(results["machine"]) == {"cores", "processor", "system", "python", "sqlite"}
    assert f"Command: `{results['command']}`" in tables


def test_each_table_row_has_a_cell_for_each_column(run: tuple[str, dict[str, Any]]) -> None:
    blocks = [block for block in run[0].split("\n\n") if block.startswith("|")]
    assert len(blocks) == 6
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_every_chore_is_measured_beside_puts() -> None:
    done = ran("benchmarks.chores", "--scale", "0.005", "--alone", "0.1")
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0].removeprefix("| ") for row in rows] == [
        *("none", "jobs of a dead worker", "lapsed leases", "counters", "retention"),
        "due delayed jobs",
    ]
    assert int(rows[0][3]) > 0  # puts


def test_tasks_are_measured_end_to_end() -> None:
    done = ran("benchmarks.tasks", "--n", "20", "--idle", "0.2", timeout=120)
    assert done.returncode == 0, done.stderr
    head, _, row = [line for line in done.stdout.splitlines() if line.startswith("|")]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert len(cells) == head.count("|") - 1
    assert cells[0] == "ours"
    assert all(cells), done.stderr
    assert cells[-1].startswith("after")  # a killed worker's task ran again


def test_an_unknown_task_system_is_refused_by_name() -> None:
    done = ran("benchmarks.tasks", "--systems", "nobody")
    assert done.returncode == 1
    assert "There is no system nobody." in done.stderr


def test_an_unknown_contestant_is_refused_by_name() -> None:
    done = ran("benchmarks", "--only", "nobody")
    assert done.returncode == 2
    assert "There is no contestant nobody." in done.stderr


def test_the_page_is_made_from_the_results_that_are_kept() -> None:
    from benchmarks import page

    text = page.PAGE.read_text()
    assert text.count("<!-- results: ") == text.count("<!-- end -->") > 5
    assert page.made(text) == text


def test_a_plot_is_an_image_with_a_bar_for_each_value() -> None:
    import xml.etree.ElementTree as ElementTree

    from benchmarks import plots

    image = plots.bars("A & B", {"put": [("ours", 1.5, True), ("other", 3.0, False)]})
    root = ElementTree.fromstring(image)
    bars = [element for element in root if element.tag.endswith("rect")][1:]
    assert [float(bar.attrib["width"]) for bar in bars] == [220.0, 440.0]
