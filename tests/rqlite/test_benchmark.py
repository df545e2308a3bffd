"""The benchmark of the replicated queue runs and reports; how fast anything is, no test asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.rqlite

ROOT = Path(__file__).resolve().parents[2]


def test_every_verb_is_measured_beside_the_bare_loop(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.rqlite", "--rounds", "1", "--n", "5"]
    command += ["--waiting", "60", "--groups", "30", "--idle", "1", "--json", str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads(results.read_text())
    assert [row["verb"] for row in told["rows"]] == [
        "bare", "bare, http.client", "put", "claim", "ack", "put_many of 500", "exchange of 20",
        "floor, claim", "floor, exchange of 20", "claim, deep", "put, deep",
        "claim, groups", "put, groups",
    ]  # fmt: skip
    assert all(row["us"] > 0 and row["times"] > 0 for row in told["rows"])
    assert told["writes"] >= 0
    assert all(f"| {row['verb']} |" in done.stdout for row in told["rows"])
