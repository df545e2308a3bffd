"""An alias of LOCALQUEUE that is on rqlite."""

from __future__ import annotations

import base64
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.views.debug import SafeExceptionReporterFilter

from django_localqueue import conf, queues
from django_localqueue.backends.rqlite import RqliteQueue, stores
from django_localqueue.backends.sqlite import SQLiteQueue
from django_localqueue.conf import locations
from django_localqueue.exceptions import NotStored
from tests.fakes.authority import Authority, server_context
from tests.fakes.rqlite import FakeCluster, User

HIDDEN = {"auth": ("app", "hidden")}
BACKEND = "django_localqueue.backends.rqlite.RqliteQueue"


def on_rqlite(location: Any, **entry: Any) -> Any:
    default = {"BACKEND": BACKEND, "LOCATION": location, **entry}
    return override_settings(LOCALQUEUE={"default": default, "emails": {}})


def problems(deploy: bool = False) -> str:
    found = django_checks.run_checks(tags=["localqueue"], include_deployment_checks=deploy)
    return str(found)


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
        ({"OPTIONS": {"tls": True}}, "['tls'] is True"),
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


def test_aliases_of_one_cluster_share_its_login_and_timeouts() -> None:
    with FakeCluster(users={"app": User("secret")}) as cluster:
        options = {"auth": "app:secret", "timeouts": 5}
        with on_rqlite(cluster.urls, OPTIONS=options):
            assert queues["default"].put(1).created
            assert queues["emails"].put(1).created
            assert problems() == "[]"


def test_two_logins_for_one_cluster_are_refused_before_anything_is_sent(
    cluster: FakeCluster,
) -> None:
    aliases = {
        "default": {"BACKEND": BACKEND, "LOCATION": cluster.urls, "OPTIONS": {"auth": "app:one"}},
        "emails": {"OPTIONS": {"auth": "app:hidden"}},
    }
    with override_settings(LOCALQUEUE=aliases):
        with pytest.raises(ImproperlyConfigured, match="ask for different auth") as caught:
            queues["emails"].stats()
        assert "hidden" not in str(caught.value)
    assert cluster.seen == []


def test_two_logins_in_the_urls_of_one_cluster_are_refused(cluster: FakeCluster) -> None:
    urls = [url.replace("://", "://app:hidden@") for url in cluster.urls]
    aliases = {
        "default": {"BACKEND": BACKEND, "LOCATION": cluster.urls},
        "emails": {"LOCATION": urls},
    }
    with override_settings(LOCALQUEUE=aliases):
        queues["default"].stats()
        with pytest.raises(ValueError, match="other auth, tls, timeouts or clock") as caught:
            queues["emails"].stats()
    assert "hidden" not in str(caught.value)


def test_the_tls_options_of_the_settings_reach_every_node(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    cert, key = authority.issue("client")
    tls = {"ca": authority.ca, "cert": cert, "key": key}
    with FakeCluster(tls=server_context(authority, "localhost", mutual=True)) as cluster:
        with on_rqlite(cluster.urls, OPTIONS={"tls": tls, "timeouts": 5}):
            assert queues["default"].put(1).created
            assert queues["emails"].put(1).created
            assert problems(deploy=True) == "[]"
        with on_rqlite(cluster.urls, OPTIONS={"tls": {"ca": authority.ca}}):
            found = problems(deploy=True)
    assert all(url in found for url in cluster.urls)
    assert "Correct OPTIONS['tls']" in found or "no connection" in found


def test_a_node_that_refuses_the_login_is_a_warning_that_shows_no_password() -> None:
    users = {"app": User("secret")}
    with FakeCluster(users=users) as cluster, on_rqlite(cluster.urls, OPTIONS=HIDDEN):
        found = problems(deploy=True)
    assert all(url in found for url in cluster.urls)
    assert "W011" in found
    assert "Correct OPTIONS['auth']" in found
    assert "hidden" not in found


def test_a_port_of_something_else_is_a_warning_that_asks_for_the_right_one() -> None:
    with FakeCluster(nodes=1) as cluster:
        cluster.fail_next(
            "status", times=99, text="<html>", headers={"server": "nginx"}, status=200
        )
        with on_rqlite(cluster.urls):
            found = problems(deploy=True)
    assert "Give the node's HTTP port" in found


def test_the_timeouts_of_the_settings_bound_a_verb(cluster: FakeCluster) -> None:
    with on_rqlite(cluster.urls):
        queues["default"].put(1)
    for node in range(len(cluster.urls)):
        cluster.stop(node)  # refused at once, so that no answer can be late
    with on_rqlite(cluster.urls, OPTIONS={"timeouts": {"read": 0.1, "total": 0.2}}):
        began = time.monotonic()
        with pytest.raises(NotStored):
            queues["default"].put(2)
        assert time.monotonic() - began < 10  # the default total is 30


def test_no_text_of_the_store_shows_the_login() -> None:
    key, options = stores.address("http://app:hidden@10.0.0.1:4001", None)
    shared = stores.SharedStore(key, options)
    texts = [key, repr(options), repr(shared), repr(shared.client), repr(shared.client.nodes())]
    shared.client.close()
    assert "hidden" not in " ".join(texts)
    assert options.auth == ("app", "hidden")


def test_the_error_page_of_django_hides_the_option_auth() -> None:
    with on_rqlite(["http://10.0.0.1:4001"], OPTIONS=HIDDEN):
        shown = SafeExceptionReporterFilter().get_safe_settings()["LOCALQUEUE"]
    assert "10.0.0.1" in str(shown)
    assert "hidden" not in str(shown)


def test_no_log_line_holds_the_login(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeCluster(users={"app": User("hidden")}) as cluster:
        urls = [url.replace("://", "://app:hidden@") for url in cluster.urls]
        with on_rqlite(urls, OPTIONS={"timeouts": 5}):
            queues["default"].put(1)
            cluster.stop(0)
            cluster.leader = 1
            queues["default"].put(2)
    assert [record for record in caplog.records if record.name.startswith("django_localqueue")]
    logged = " ".join(
        f"{record.getMessage()} {record.__dict__} {record.exc_info}" for record in caplog.records
    )
    assert "hidden" not in logged
    assert base64.b64encode(b"app:hidden").decode() not in logged


def test_a_test_run_without_test_location_never_touches_the_cluster(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster
) -> None:
    with on_rqlite(cluster.urls, OPTIONS={"timeouts": {"total": 5}, "lease_seconds": 30}):
        # As if the settings of the project said so, and not a test.
        monkeypatch.setattr(locations, "_is_overridden", lambda: False)
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
