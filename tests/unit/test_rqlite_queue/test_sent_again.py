"""Requests whose answer is lost, before or after they were applied, and that are applied twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import NotStored, OutcomeUnknown, StoreUnavailable
from django_localqueue.types import Settle
from tests.contract.rqlite_backends import TwoClocks
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V10
from tests.unit.test_rqlite_queue.verbs import VERBS, counts

Open = Callable[..., RqliteQueue]


@pytest.mark.parametrize("applied", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_whose_connection_drops_is_done_once_and_says_so(
    name: str, applied: bool, any_cluster: FakeCluster, open_queue: Open
) -> None:
    verb, queue = VERBS[name], open_queue(any_cluster.urls)
    given = verb.prepare(queue)
    any_cluster.fail_next("drop", applied=applied, endpoint=verb.endpoint)
    assert verb.check(verb.do(queue, given))
    assert counts(queue) == verb.counts


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_a_follower_applies_twice_is_done_once_and_says_so(
    name: str, open_queue: Open
) -> None:
    # None of the URLs is the leader's own, so the nodes forward; version 10 then sends again.
    with FakeCluster(V10, advertise=["http://elsewhere:4001"] * 3) as cluster:
        verb, queue = VERBS[name], open_queue(cluster.urls[1:])
        given = verb.prepare(queue)
        cluster.fail_next("lose-forwarded", endpoint=verb.endpoint)
        assert verb.check(verb.do(queue, given))
        assert counts(queue) == verb.counts


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_is_never_answered_is_unknown_and_was_done_once(
    name: str, cluster: FakeCluster, open_queue: Open
) -> None:
    verb = VERBS[name]
    queue = open_queue(cluster.urls, timeouts={"total": 0.5, "read": 0.2})
    given = verb.prepare(queue)
    cluster.fail_next("drop", applied=True, times=100_000, endpoint=verb.endpoint)
    with pytest.raises(OutcomeUnknown):
        verb.do(queue, given)
    cluster._faults.clear()
    assert counts(queue) == (verb.counts if verb.begun is None else verb.begun)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_without_a_leader_is_not_stored(
    name: str, cluster: FakeCluster, open_queue: Open
) -> None:
    verb = VERBS[name]
    queue = open_queue(cluster.urls, timeouts={"total": 0.3})
    given = verb.prepare(queue)
    before = counts(queue)
    cluster.leader = None
    with pytest.raises(NotStored) as caught:
        verb.do(queue, given)
    assert isinstance(caught.value, StoreUnavailable)
    cluster.leader = 1
    assert counts(queue) == before


def test_a_put_sent_again_after_its_job_was_purged_makes_no_second_job(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.stats()
    id = queue.put("once")
    late = [seen.statements for seen in cluster.applied("execute")][-1]
    queue.ack(queue.get_nowait())
    assert queue.purge(0) == 1
    cluster.database.execute(late, True)
    assert counts(queue) == {}
    assert queue.lookup(id) is None


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "fail"])
def test_a_late_copy_of_a_claim_takes_nothing_whatever_became_of_its_job(
    verb: str, cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put_many([1, 2])
    job = queue.get_nowait()
    late = [seen.statements for seen in cluster.applied("execute")][-1]
    cluster.database.execute(late, True)
    assert counts(queue) == {"ready": 1, "processing": 1}
    getattr(queue, verb)(job)
    before = counts(queue)
    cluster.database.execute(late, True)
    assert counts(queue) == before


def test_a_late_copy_of_a_claim_that_found_nothing_takes_nothing(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put(1)
    queue.exchange([Settle(queue.get_nowait(), "ack")], 1)
    late = [seen.statements for seen in cluster.applied("execute")][-1]
    queue.put(2)
    cluster.database.execute(late, True)
    assert queue.get_nowait().data == 2


def test_a_late_copy_of_a_progress_does_not_overwrite_a_newer_one(
    cluster: FakeCluster, open_queue: Open
) -> None:
    clock = TwoClocks()
    queue = open_queue(cluster.urls, clock=clock.times)
    id = queue.put(1)
    queue.nack(queue.get_nowait())
    job = queue.get_nowait()
    queue.progress(job, 1)
    late = [seen.statements for seen in cluster.applied("request")][-1]
    clock.advance(1)
    queue.progress(job, 2)
    cluster.database.request(late, True)
    record = queue.lookup(id)
    assert record is not None
    assert record.progress is not None
    assert record.progress.done == 2
    # A delivery after this one tells its own, though the clock was set back meanwhile.
    queue.nack(job)
    clock.step_wall(-2)
    queue.progress(queue.get_nowait(), 0)
    record = queue.lookup(id)
    assert record is not None
    assert record.progress is not None
    assert record.progress.done == 0


@pytest.mark.parametrize("claims", [1, 2])
def test_a_late_copy_of_an_exchange_neither_acks_nor_takes(
    claims: int, any_cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(any_cluster.urls)
    queue.put_many(range(8))
    held = [job for _ in range(claims) for job in queue.get_many(2)]
    done = queue.exchange([Settle(job, "ack", result=job.data) for job in held], 2)
    late = [seen.statements for seen in any_cluster.applied("execute")][-1]
    assert done.results == [None] * len(held)
    assert [job.data for job in done.jobs] == [len(held), len(held) + 1]
    before = counts(queue)
    assert before == {"ready": 6 - len(held), "processing": 2, "acked": len(held)}
    any_cluster.database.execute(late, True)
    assert counts(queue) == before
    record = queue.lookup(held[-1].id)
    assert record is not None
    assert record.result == b"%d" % held[-1].data


def test_an_exchange_of_which_one_lease_is_lost_settles_the_others_once(
    any_cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(any_cluster.urls)
    queue.put_many(range(5))
    held = queue.get_many(3)
    queue.ack(held[1])
    queue.release(held[2])
    done = queue.exchange([Settle(job, "ack") for job in held], 1)
    assert [getattr(result, "reason", None) for result in done.results] == [None, None, "settled"]
    assert len(done.jobs) == 1
    assert counts(queue) == {"ready": 2, "processing": 1, "acked": 2}


def test_names_that_rqlite_would_take_for_bytes_are_claimed_and_acked(
    any_cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(any_cluster.urls, "x'6869'")
    queue.put_many(range(4))
    jobs = [queue.get(block=False, worker="x'6869'"), *queue.get_many(1)]
    done = queue.exchange([Settle(job, "ack") for job in jobs], 2, worker="x'6869'")
    assert [job.data for job in done.jobs] == [2, 3]
    record = queue.lookup(done.jobs[0].id)
    assert record is not None
    assert record.worker == "x'6869'"


def test_a_nack_sent_again_after_others_had_the_job_is_still_told_as_done(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put(1)
    queue.nack(queue.get_nowait())
    late = [seen.statements for seen in cluster.applied("execute")][-1]
    for _ in range(2):
        queue.nack(queue.get_nowait())
    settled = next(statement for statement in late if "localqueue_ops" in statement[0])
    (answer,) = cluster.database.rows("SELECT answer FROM localqueue_ops WHERE op = ?", settled[1])
    assert answer == ("[[0,null]]",)
    cluster.database.execute(late, True)
    assert queue.get_nowait().attempts == 4


def test_what_was_settled_is_told_though_no_node_answers_the_claim_after_it(
    cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(cluster.urls, timeouts={"total": 0.3})
    queue.put(1)
    job = queue.get_nowait()
    cluster.fail_next("drop", times=100_000, endpoint="query")
    done = queue.exchange([Settle(job, "ack")], 2, block=True, timeout=20)
    assert (done.results, done.jobs) == ([None], [])
    cluster._faults.clear()
    assert counts(queue) == {"acked": 1}


@pytest.mark.parametrize("name", ["ack", "put"])
def test_a_verb_is_unknown_where_only_its_answer_could_not_be_read(
    name: str, cluster: FakeCluster, open_queue: Open
) -> None:
    verb, queue = VERBS[name], open_queue(cluster.urls, timeouts={"total": 0.5})
    given = verb.prepare(queue)
    queue.now()  # so that the time is known
    # Applied, and sent again: the second answer says that there is nothing to do.
    cluster.fail_next("drop", applied=True, endpoint="execute")
    for endpoint in ("query", "request"):
        cluster.fail_next("drop", times=100_000, endpoint=endpoint)
    with pytest.raises(OutcomeUnknown):
        verb.do(queue, given)
    cluster._faults.clear()
    assert counts(queue) == verb.counts


def test_a_late_copy_of_a_pause_leaves_a_resumed_queue_alone(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put(1)
    queue.pause()
    late = [seen.statements for seen in cluster.applied("execute")][-1]
    queue.resume()
    cluster.database.execute(late, True)
    assert queue.get_nowait().data == 1
