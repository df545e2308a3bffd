"""docs/console.md says what is: each row of its comparison names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

from django_localqueue.console.permissions import ACTIONS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "console.md").read_text()


def test_every_row_of_the_comparison_names_a_test_that_exists():
    table = PAGE.split("## Compared", 1)[1].split("## Held by tests", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 30
    for row in rows:
        found = re.search(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert found, row
        assert f"def {found[2]}(" in (ROOT / "tests" / found[1]).read_text(), row


def test_every_test_that_is_named_exists():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 60
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name


def test_every_permission_is_explained():
    assert [action for action in ACTIONS if f"`{action}`" not in PAGE] == []


def test_every_picture_is_there_and_small():
    names = re.findall(r"\]\((images/[\w-]+\.png)\)", PAGE)
    assert names
    for name in names:
        assert (ROOT / "docs" / name).stat().st_size < 150_000
