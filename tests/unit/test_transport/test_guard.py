"""A request that notes itself in a table, so that a second copy of it fails and is told as that."""

from __future__ import annotations

import pytest

from django_localqueue.exceptions import NotStored, OutcomeUnknown
from django_localqueue.transports import errors
from tests.unit.test_transport.test_core import LOST, Talk, answer

TWICE = answer({"results": [{"error": "UNIQUE constraint failed: notes.id"}]})
NULL = answer({"results": [{"rows_affected": 1}, {"error": "NOT NULL constraint failed: notes.n"}]})
STATEMENTS = (["INSERT INTO notes"], ["INSERT INTO other"])


def send(talk: Talk, guard: str = "notes") -> None:
    talk.run(talk.cluster.execute(STATEMENTS, repeatable=True, guard=guard))


@pytest.mark.parametrize("refusal", [TWICE, NULL])
def test_a_copy_that_the_guard_refuses_is_told_whatever_became_of_the_first(
    refusal: object,
) -> None:
    for replies in ([LOST, refusal], [refusal]):
        talk = Talk(list(replies))  # type: ignore[arg-type]
        with pytest.raises(errors.GuardFailed, match="constraint failed: notes"):
            send(talk)
        assert len(talk.requests) == len(replies)


@pytest.mark.parametrize("version", ["8.43.4", "10.2.7"])
def test_what_stands_beside_a_guarded_statement_that_returns_rows_is_no_half_done_write(
    version: str,
) -> None:
    # facts 0.5: before 9.4.2 the others of the transaction are then applied.
    statements = (["UPDATE other"], ["INSERT INTO notes RETURNING id"], ["UPDATE other"])
    failed = {"error": "UNIQUE constraint failed: notes.id"}
    slots = [{}, failed, {}] if version == "8.43.4" else [{}, failed]
    talk = Talk([answer({"results": slots}, version=version)])
    with pytest.raises(errors.GuardFailed):
        talk.run(talk.cluster.execute(statements, repeatable=True, guard="notes"))


def test_the_constraint_of_another_table_says_nothing_of_the_first_copy() -> None:
    other = answer({"results": [{"error": "UNIQUE constraint failed: other.id"}]})
    with pytest.raises(OutcomeUnknown):
        send(Talk([LOST, other]))
    with pytest.raises(NotStored) as caught:
        send(Talk([other]))
    assert type(caught.value) is errors.ConstraintFailed


def test_without_a_guard_a_failed_constraint_is_what_it_was() -> None:
    with pytest.raises(errors.ConstraintFailed) as caught:
        send(Talk([TWICE]), guard="")
    assert type(caught.value) is errors.ConstraintFailed
