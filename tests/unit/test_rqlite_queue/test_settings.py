"""An alias of LOCALQUEUE that is on rqlite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_localqueue import conf, queues
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.backends.sqlite import SQLiteQueue
from tests.fakes.rqlite import FakeCluster, User

BACKEND = "django_localqueue.backends.rqlite.RqliteQueue"


def on_rqlite(location: Any, **entry: Any) -> Any:
    default = {"BACKEND": BACKEND, "LOCATION": location, **entry}
    return override_settings(LOCALQUEUE={"default": default, "emails": {}})


def problems() -> str:
    return str(django_checks.run_checks(tags=["localqueue"]))


def test_aliases_share_the_cluster_of_default(cluster: FakeCluster) -> None:
    with on_rqlite(cluster.urls):
        queues["emails"].put("to somebody")
        assert isinstance(queues["default"], RqliteQueue)
        assert queues["default"].store_key == queues["emails"].store_key
        jobs = queues["default"].exchange([], 5, sources=queues.all()).jobs
        assert [(job.queue.name, job.data) for job in jobs] == [("emails", "to somebody")]


def test_the_options_of_rqlite_reach_it() -> None:
    with FakeCluster(users={"app": User("secret")}) as cluster:
        options = {"auth": ["app", "secret"], "timeouts": {"total": 5}, "lease_seconds": 90}
        with on_rqlite(cluster.urls, OPTIONS=options):
            queue = queues["default"]
            assert queue.put(1).created
            assert queue.lease_seconds == 90
            assert problems() == "[]"


@pytest.mark.parametrize("auth", ["app:se:cret", ("app", "se:cret")])
def test_a_login_is_a_pair_or_a_text(auth: Any) -> None:
    users = {"app": User("se:cret")}
    with FakeCluster(users=users) as cluster, RqliteQueue(cluster.urls, auth=auth) as queue:
        assert queue.put(1).created


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"OPTIONS": {"tls": True}}, "tls must be a dict"),
        ({"OPTIONS": {"tls": {"ca": "/nowhere"}}}, "/nowhere"),
        ({"OPTIONS": {"timeouts": {"conect": 1}}}, "connect, read, total"),
        ({"OPTIONS": {"timeouts": {"read": 0}}}, "'read' must be"),
        ({"OPTIONS": {"lease_seconds": 0}}, "lease_seconds must"),
        ({"OPTIONS": {"auth": {"password": "hidden"}}}, "['auth'] is <class 'dict'>"),
        ({"OPTIONS": {"durability": "normal"}}, "['durability'] has no effect"),
        ({"location": []}, "list of rqlite nodes is empty"),
        ({"location": "10.0.0.1:4001"}, "must begin with http"),
        ({"location": "http://app:hidden@10.0.0.1:4001/db"}, "must end after the port"),
        ({"location": "http://app:hidden@10.0.0.1:40o1"}, "cannot be read"),
        ({"location": Path("/srv/queue")}, "location must be the URL"),
    ],
)
def test_the_checks_name_what_cannot_be_and_show_no_password(
    entry: dict[str, Any], text: str
) -> None:
    with on_rqlite(**{"location": "http://10.0.0.1:4001", **entry}):
        found = problems()
    assert text in found
    assert "hidden" not in found


def test_good_settings_pass_and_nothing_is_sent(cluster: FakeCluster) -> None:
    with on_rqlite(cluster.urls):
        assert problems() == "[]"
        queues["default"]
    assert cluster.seen == []


def test_a_password_is_in_no_text_of_queue_or_settings() -> None:
    with on_rqlite(["http://app:hidden@127.0.0.1:1"], OPTIONS={"timeouts": {"total": 0.05}}):
        queue = queues["default"]
        shown = [repr(queue), queue.store_key, repr(conf.queue_settings())]
        with pytest.raises(Exception, match="no connection") as caught:
            queue.put(1)
        assert "hidden" not in " ".join([*shown, str(caught.value)])


def test_two_logins_for_one_cluster_in_one_process_are_refused(cluster: FakeCluster) -> None:
    aliases = {
        "default": {"BACKEND": BACKEND, "LOCATION": cluster.urls},
        "emails": {"OPTIONS": {"auth": "app:hidden"}},
    }
    with override_settings(LOCALQUEUE=aliases):
        queues["default"].stats()
        with pytest.raises(ValueError, match="other auth, tls, timeouts or clock"):
            queues["emails"].stats()


def test_a_test_run_without_test_location_never_touches_the_cluster(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster
) -> None:
    with on_rqlite(cluster.urls, OPTIONS={"timeouts": {"total": 5}, "lease_seconds": 30}):
        # As if the settings of the project said so, and not a test.
        monkeypatch.setattr(conf, "_is_overridden", lambda: False)
        queue = queues["default"]
        queue.put(1)
        assert isinstance(queue, SQLiteQueue)
        assert queue.lease_seconds == 30
    assert cluster.seen == []


def test_test_location_is_a_cluster_in_which_parallel_processes_have_queues_of_their_own(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    with on_rqlite(["http://10.0.0.1:4001"], TEST={"LOCATION": cluster.urls}):
        queue = queues["default"]
        queue.put(1)
        assert queue.name == "default_gw7"
    assert cluster.seen != []


def test_a_location_that_is_left_out_is_asked_for() -> None:
    with (
        override_settings(LOCALQUEUE={"default": {"BACKEND": BACKEND}}),
        pytest.raises(ImproperlyConfigured, match="Set LOCATION to the URLs of the nodes"),
    ):
        queues["default"]
