"""URLs, credentials and TLS options: what is taken, what is refused, what is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_localqueue.exceptions import InvalidInput
from django_localqueue.transports import Tls
from django_localqueue.transports.client import RqliteClient
from django_localqueue.transports.nodes import parse_location
from django_localqueue.transports.statements import looks_like_blob, text

pytest.importorskip("requests")


def urls(location: Any) -> list[str]:
    return [node.url for node in parse_location(location)[0].all]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://localhost:4001", "http://localhost:4001"),
        ("http://localhost:4001/", "http://localhost:4001"),
        ("HTTP://LOCALHOST:4001", "http://localhost:4001"),
        ("http://localhost", "http://localhost:80"),
        ("https://localhost", "https://localhost:443"),
        ("http://[::1]:4001", "http://[::1]:4001"),
        ("http://user:secret@localhost:4001", "http://localhost:4001"),
    ],
)
def test_a_url_is_reduced_to_scheme_host_and_port(given: str, read: str) -> None:
    assert urls(given) == [read]


def test_several_nodes_keep_their_order_and_count_once() -> None:
    assert urls(["http://b:1", "http://a:1", "http://B:1/"]) == ["http://b:1", "http://a:1"]


@pytest.mark.parametrize(
    "location",
    [
        [],
        "",
        "localhost:4001",
        "ftp://user:secret@localhost:4001",
        "http://",
        "http://user:secret@",
        "http://user:secret@local host:4001",
        "http://user:secret@localhost:port",
        "http://user:secret@localhost:99999",
        "http://user:secret@localhost:0",
        "http://user:secret@[::1",
        "http://user:secret@localhost:4001/db",
        "http://user:secret@localhost:4001?level=none",
        ["http://user:secret@a:1", "https://b:1"],
        ["http://user:secret@a:1", "http://user:secret2@b:1"],
        ["http://user:secret@a:1", 5],
        [None],
    ],
)
def test_a_wrong_location_is_refused_without_showing_the_password(location: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_location(location)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("auth", ["user:secret", ("user",), ("user", None), ("us:er", "secret"), 5])
def test_wrong_credentials_are_refused_without_being_shown(auth: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_location("http://a:1", auth)
    assert "secret" not in str(refused.value)


def test_credentials_are_unquoted_and_never_shown() -> None:
    _, login = parse_location("http://us%40er:p%3Ass@a:1")
    assert login is not None
    assert (login.user, login.password) == ("us@er", "p:ss")
    assert login.header() == "Basic dXNAZXI6cDpzcw=="
    assert repr(login) == "Login()"


def test_given_credentials_go_before_those_of_the_url() -> None:
    _, login = parse_location("http://a:b@c:1", ("user", "pässword"))
    assert login is not None
    assert login.user == "user"
    assert login.header() == "Basic dXNlcjpww6Rzc3dvcmQ="


def test_no_part_of_a_client_shows_the_password() -> None:
    client = RqliteClient("http://user:secret@localhost:4001")
    request = next(client.cluster.query([["SELECT 1"]]))
    for part in (client, request, client.nodes(), client.cluster.nodes):
        assert "secret" not in repr(part)
        assert "dXNlcjpzZWNyZXQ" not in repr(part)
    client.close()


@pytest.mark.parametrize("option", ["ca", "cert"])
def test_a_missing_file_of_the_tls_options_is_named(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{option}'.*nowhere.pem"):
        Tls(**{option: "nowhere.pem"})


def test_a_key_needs_a_certificate() -> None:
    with pytest.raises(InvalidInput, match="cert"):
        Tls(key="key.pem")


def test_a_file_that_is_no_certificate_is_refused_before_any_request(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("not a certificate")
    with pytest.raises(InvalidInput, match="TLS files"):
        RqliteClient("https://localhost:4001", tls=Tls(ca=str(path)))


def test_tls_options_without_https_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("")
    with pytest.raises(InvalidInput, match="plain http"):
        RqliteClient("http://localhost:4001", tls=Tls(ca=str(path)))


@pytest.mark.parametrize("value", ["x''", "X'00fF'", " x'6869'\t", "\nx'ab'"])
def test_a_text_like_a_blob_travels_in_halves_that_are_not(value: str) -> None:
    assert looks_like_blob(value)
    expression, halves = text(value)
    assert expression == "(? || ?)"
    assert "".join(halves) == value
    assert not any(looks_like_blob(half) for half in halves)


@pytest.mark.parametrize("value", ["x'6'", "x'6g'", "x6869", "'6869'", "", "x", 'x"6869"', "xx''"])
def test_any_other_text_travels_whole(value: str) -> None:
    assert text(value) == ("?", (value,))
