"""The console over a cluster: the same pages and acts, and what waits in the outbox."""

from __future__ import annotations

import pytest

from django_localqueue import queues
from django_localqueue.console import stores
from django_localqueue.outbox.models import OutboxJob
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V10
from tests.unit.test_console.tools import LIST, OVERVIEW, VIEWER, Page, confirm, job_url, states

SCHEDULES = "/admin/django_localqueue/schedule/"


@pytest.fixture
def cluster(settings):
    """Both queues on a stand-in of three nodes, which allows anybody in with a password."""
    queues.close_all()
    with FakeCluster(V10) as cluster:
        settings.LOCALQUEUE = {
            "default": {
                "BACKEND": "django_localqueue.backends.rqlite.RqliteQueue",
                "LOCATION": list(cluster.urls),
            },
            "emails": {},
        }
        yield cluster
        queues.close_all()


def test_every_page_is_whole_over_a_cluster(cluster, fail, operator):
    (id,) = fail(1, error=ValueError("no"), task="app.run")
    queues["emails"].put("x", delay=60)
    for address in (
        "/admin/",
        OVERVIEW,
        f"{OVERVIEW}default/change/",
        f"{LIST}errors/",
        f"{LIST}tasks/",
        job_url("default", id),
        *(f"{LIST}?state={state}" for state in ("failed", "ready", "delayed", "acked")),
    ):
        response = operator.get(address)
        assert response.status_code == 200, address
        assert Page(response.content.decode()).forbidden == []
    assert operator.get(f"{LIST}errors/").context["rows"][0]["group"].total == 1
    assert operator.get(OVERVIEW).context["failed_total"] == 1


def test_acts_change_jobs_on_a_cluster(cluster, fail, operator, act):
    fail(3)
    act(operator, "retry-all")
    assert states() == (3, 0, 0)
    assert cluster.database.rows("SELECT count(*) FROM localqueue_messages") == [(3,)]


def test_the_overview_tells_what_waits_in_the_outbox(operator):
    assert operator.get(OVERVIEW).context["outbox"] == 0
    OutboxJob.objects.create(job_id="1", queue="default", backend="default", task="app.run")
    response = operator.get(OVERVIEW)
    assert response.context["outbox"] == 1
    assert "1 job waits in the outbox." in Page(response.content.decode()).text


def test_a_confirmation_over_a_cluster_touches_only_what_was_seen(cluster, fail, operator, page):
    fail(1)
    shown = page(operator, LIST)
    fields = {name: shown.field(name) for name in ("filter", "as_of", "next", "state")}
    (late,) = fail(1)
    response = operator.post(f"{LIST}act/", fields | {"act": "discard-all"})
    confirm(operator, response)
    assert queues["default"].lookup(late).reason == "failed"


@pytest.mark.parametrize("address", [OVERVIEW, LIST, f"{LIST}errors/", SCHEDULES, "/admin/"])
def test_a_cluster_that_does_not_answer_keeps_no_page_waiting_for_long(
    address, cluster, settings, login, monkeypatch
):
    settings.LOCALQUEUE_CONSOLE = {"READ_SECONDS": 0.4}
    queues["default"].put("x")
    waits = []

    class Silent(dict):
        def __setitem__(self, key, value):
            waits.append(key)
            super().__setitem__(key, value)

    monkeypatch.setattr(stores, "SILENCE_SECONDS", 60.0)
    monkeypatch.setattr(stores, "_silent", Silent())
    for node in range(3):
        cluster.stop(node)
    response = login(*VIEWER, "view_schedule", "view_worker").get(address)
    assert response.status_code == 200
    assert waits == [queues["default"].store_key], "all that a page asks of both queues waits once"
    if address != "/admin/":
        text = Page(response.content.decode()).text
        assert "ClusterUnavailable" in text
        assert "There are no" not in text


def test_an_act_may_take_longer_than_a_page_waits(cluster, settings, fail, operator):
    settings.LOCALQUEUE_CONSOLE = {"READ_SECONDS": 0.2}
    (id,) = fail(1)
    cluster.fail_next("stall", endpoint="execute", seconds=1.0)
    assert operator.post(job_url("default", id, "job_retry")).status_code == 302
    assert states() == (1, 0, 0)
