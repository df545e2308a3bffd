"""What the two carriers do with connections: users, TLS, threads, forks, missing libraries."""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import StoreUnavailable
from django_localqueue.transports import (
    AsyncRqliteTransport,
    RqliteTransport,
    Timeouts,
    Tls,
    errors,
)
from tests.fakes.authority import Authority, server_context
from tests.fakes.rqlite import FakeCluster, User
from tests.fakes.server import stranger
from tests.fakes.versions import V8, V10, Version

Connect = Callable[..., Any]
USERS = {"app": User("right secret"), "reader": User("right secret", {"query"})}


@pytest.mark.parametrize("version", [V8, V10])
def test_the_right_user_is_let_in_on_every_node(connect: Connect, version: Version) -> None:
    with FakeCluster(version, users=USERS) as cluster:
        cluster.leader = 2
        transport = connect(cluster.urls, auth=("app", "right secret"))
        transport.publish("g", "1")
        assert transport.claim("w", 30).event == "1"


@pytest.mark.parametrize("version", [V8, V10])
def test_a_wrong_password_is_told_at_once_and_never_shown(
    connect: Connect, version: Version, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeCluster(version, users=USERS) as cluster:
        url = cluster.urls[0].replace("://", "://app:wrong%20secret@")
        with pytest.raises(errors.AccessRefused) as refused:
            connect(url)
        assert len(cluster.seen) == 0
    assert "secret" not in str(refused.value) + caplog.text
    assert cluster.urls[0] in str(refused.value)


def test_a_missing_permission_is_named(connect: Connect) -> None:
    with FakeCluster(users=USERS) as cluster:
        connect(cluster.urls, auth=("app", "right secret"))
        reader = connect(cluster.urls, auth=("reader", "right secret"))
        with pytest.raises(errors.AccessRefused, match='"execute"'):
            reader.publish("g", "1")


def test_the_environment_neither_proxies_nor_logs_in(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login netrc password netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with FakeCluster() as cluster:
        connect(cluster.urls).publish("g", "1")
        assert {seen.authorization for seen in cluster.seen} == {None}


@pytest.mark.parametrize("body", [b"", b"+PONG\r\n", b"HTTP/1.1 what\r\n\r\n"])
def test_a_port_of_something_else_fails_within_the_deadline(connect: Connect, body: bytes) -> None:
    with stranger(body) as url, pytest.raises(errors.ClusterUnavailable):
        connect(url, wait=0.4)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


def test_a_private_authority_is_trusted_on_every_node(
    connect: Connect, authority: Authority
) -> None:
    with FakeCluster(tls=server_context(authority, "localhost")) as cluster:
        transport = connect(cluster.urls, tls=Tls(ca=authority.ca))
        transport.publish("g", "1")
        cluster.stop(0)
        cluster.leader = 1
        transport.publish("g", "2")
        assert len(cluster.database.rows("SELECT * FROM messages")) == 2


def test_a_client_certificate_is_shown_where_it_is_wanted(
    connect: Connect, authority: Authority
) -> None:
    cert, key = authority.issue("client")
    with FakeCluster(tls=server_context(authority, "localhost", mutual=True)) as cluster:
        cluster.leader = 1
        connect(cluster.urls, tls=Tls(authority.ca, cert, key)).publish("g", "1")
        assert len(cluster.database.rows("SELECT * FROM messages")) == 1


@pytest.mark.parametrize("mistake", ["another authority", "another host", "plain http"])
def test_a_node_that_cannot_be_trusted_is_refused_at_once(
    connect: Connect, authority: Authority, tmp_path: Path, mistake: str
) -> None:
    ca = Authority(tmp_path, "other").ca if mistake == "another authority" else authority.ca
    host = "elsewhere" if mistake == "another host" else "localhost"
    tls = None if mistake == "plain http" else server_context(authority, host)
    with FakeCluster(tls=tls) as cluster:
        urls = [url.replace("http:", "https:") for url in cluster.urls]
        with pytest.raises(errors.TlsFailed, match=r"https://.*: TLS: "):
            connect(urls, tls=Tls(ca=ca))
        assert cluster.seen == []


def test_a_missing_client_certificate_is_told(connect: Connect, authority: Authority) -> None:
    with (
        FakeCluster(tls=server_context(authority, "localhost", mutual=True)) as cluster,
        pytest.raises(StoreUnavailable, match=r"client certificate|connection"),
    ):
        connect(cluster.urls, tls=Tls(ca=authority.ca), wait=3)


def test_threads_share_a_transport_and_lease_each_message_once(connect: Connect) -> None:
    pytest.importorskip("requests")
    with FakeCluster() as cluster, RqliteTransport.from_url(cluster.urls) as transport:
        for number in range(40):
            transport.publish(f"g{number}", str(number))
        taken: list[int] = []

        def work(name: str) -> None:
            while (lease := transport.claim(name, 60)) is not None:
                taken.append(lease.seq)
                transport.ack(lease)

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(taken) == list(range(1, 41))


def test_tasks_share_an_async_transport_and_lease_each_message_once() -> None:
    pytest.importorskip("httpx")
    taken: list[int] = []

    async def work(transport: AsyncRqliteTransport, name: str) -> None:
        while (lease := await transport.claim(name, 60)) is not None:
            taken.append(lease.seq)
            await transport.ack(lease)

    async def main(urls: list[str]) -> None:
        async with await AsyncRqliteTransport.from_url(urls) as transport:
            for number in range(20):
                await transport.publish(f"g{number}", str(number))
            await asyncio.gather(*(work(transport, f"w{n}") for n in range(4)))

    with FakeCluster() as cluster:
        asyncio.run(main(cluster.urls))
    assert sorted(taken) == list(range(1, 21))


def test_an_async_transport_works_in_one_event_loop_after_another() -> None:
    pytest.importorskip("httpx")

    async def publish(transport: AsyncRqliteTransport, event: str) -> None:
        await transport.publish("g", event)

    with FakeCluster() as cluster, asyncio.Runner() as first, asyncio.Runner() as second:
        transport = first.run(AsyncRqliteTransport.from_url(cluster.urls))
        second.run(publish(transport, "1"))
        second.run(transport.close())
        first.run(transport.close())
        assert len(cluster.database.rows("SELECT * FROM messages")) == 1


def test_an_event_loop_runs_on_while_a_verb_waits() -> None:
    pytest.importorskip("httpx")

    async def main(cluster: FakeCluster) -> None:
        timeouts = Timeouts(connect=1, read=5, total=20)
        async with await AsyncRqliteTransport.from_url(
            cluster.urls, timeouts=timeouts
        ) as transport:
            cluster.fail_next("stall", endpoint="execute")
            verb = asyncio.create_task(transport.publish("g", "1"))
            while not cluster.applied("execute")[1:]:
                await asyncio.sleep(0.001)
            assert not verb.done()
            cluster.release()
            await verb

    with FakeCluster() as cluster:
        asyncio.run(main(cluster))
        assert len(cluster.database.rows("SELECT * FROM messages")) == 1


FORK = """
import os, sys
from django_localqueue.transports import RqliteTransport
transport = RqliteTransport.from_url(sys.argv[1])
transport.publish("g", "parent")
child = os.fork()
if child == 0:
    transport.publish("g", "child")
    transport.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
transport.publish("g", "parent again")
transport.close()
"""


def test_a_forked_child_uses_connections_of_its_own() -> None:
    pytest.importorskip("requests")
    with FakeCluster() as cluster:
        subprocess.run(
            [sys.executable, "-c", FORK, cluster.urls[0]],
            check=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        events = cluster.database.rows("SELECT event FROM messages ORDER BY seq")
    assert events == [("parent",), ("child",), ("parent again",)]


@pytest.mark.parametrize(("library", "extra"), [("requests", "rqlite"), ("httpx", "rqlite-async")])
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, library: str, extra: str
) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == library:
            raise ImportError(name)
        return original(name, *rest, **options)

    def construct() -> None:
        if library == "requests":
            RqliteTransport.from_url("http://127.0.0.1:1")
        else:
            asyncio.run(AsyncRqliteTransport.from_url("http://127.0.0.1:1"))

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=rf"pip install django-localqueue\[{extra}\]"):
        construct()


def test_the_queue_names_itself_where_its_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    queue = RqliteQueue("http://127.0.0.1:1")
    with pytest.raises(ImportError, match=r"^RqliteQueue needs .*django-localqueue\[rqlite\]"):
        queue.stats()


def test_importing_the_transports_imports_neither_library() -> None:
    code = (
        "import sys, django_localqueue.transports;"
        "sys.exit(bool({'requests', 'httpx'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
