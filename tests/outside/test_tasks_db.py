"""The suite of django-tasks-db passes with our backend, worker and purge in place of its own."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.rqlite import FakeCluster
from tests.outside import runner
from tests.outside.sources import TASKS_DB, Unavailable, unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

pytestmark = [pytest.mark.outside, pytest.mark.timeout(600)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with their tests, the modules that those import, and our runner."""
    try:
        found = unpack(TASKS_DB, tmp_path / "source")
    except Unavailable as error:
        pytest.skip(str(error))
    folder = tmp_path / "suite"
    shutil.copytree(HERE / "tasks_db", folder)
    shutil.copy(HERE / "runner.py", folder)
    shutil.copy(found / "tests.py", folder / "tests")
    (folder / "data").mkdir()
    return folder


@pytest.mark.parametrize("store", ["sqlite", pytest.param("rqlite", marks=pytest.mark.slow)])
def test_all_of_its_tests_pass_but_those_that_are_named(folder: Path, store: str) -> None:
    with ExitStack() as stack:
        nodes = stack.enter_context(FakeCluster()).urls if store == "rqlite" else []
        places = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
            "OUTSIDE_FOLDER": str(folder / "data"),
            "OUTSIDE_NODES": " ".join(nodes),
        }
        outcome = runner.outcome(["suite.py"], folder, **variables)
    assert outcome["failed"] == []
    page = (ROOT / "docs" / "conformance.md").read_text()
    version = re.escape(TASKS_DB.version)
    (told,) = re.findall(rf"^\| django-tasks-db {version} \|(.*)\|$", page, re.M)
    total = outcome["run"] + outcome["skipped"]
    assert [int(cell) for cell in told.split("|")] == [total, outcome["run"], outcome["skipped"]]
