"""Django's own tests of its tasks framework pass with our backend in place of Django's two."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import django
import pytest

from tests.fakes.rqlite import FakeCluster
from tests.outside import runner
from tests.outside.sources import DJANGO, Unavailable, unpack

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.outside, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``tests/tasks`` of this Django's series."""
    source = DJANGO.get(django.VERSION[:2])
    if source is None:
        pytest.skip(f"Django {django.VERSION[0]}.{django.VERSION[1]} has no tests of tasks")
    try:
        return unpack(source, tmp_path_factory.mktemp("django"))
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("store", ["sqlite", pytest.param("rqlite", marks=pytest.mark.slow)])
def test_all_of_djangos_tests_pass_but_those_that_are_named(folder: Path, store: str) -> None:
    with ExitStack() as stack:
        nodes = stack.enter_context(FakeCluster()).urls if store == "rqlite" else []
        suite = ["-m", "tests.outside.django_suite", str(folder), *nodes]
        outcome = runner.outcome(["-W", "error", *suite], ROOT)
    assert outcome["failed"] == []
    series = ".".join(map(str, django.VERSION[:2]))
    page = (ROOT / "docs" / "conformance.md").read_text()
    (told,) = re.findall(rf"^\| Django {series}\.\d+, `tests/tasks` \|(.*)\|$", page, re.M)
    total = outcome["run"] + outcome["skipped"]
    assert [int(cell) for cell in told.split("|")] == [total, outcome["run"], outcome["skipped"]]
