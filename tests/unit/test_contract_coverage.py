"""The contract suite leaves no verb of a queue out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_localqueue.backends.base import BaseQueue

CONTRACT = Path(__file__).parent.parent / "contract"
VERBS = [name for name in dir(BaseQueue) if name[0] != "_" and callable(getattr(BaseQueue, name))]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_called_in_the_contract_suite(verb: str) -> None:
    call = re.compile(rf"\.{verb}\(")
    assert any(call.search(page.read_text()) for page in CONTRACT.glob("test_*.py"))
