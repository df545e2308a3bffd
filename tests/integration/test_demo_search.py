"""The catalogue's pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

pytestmark = [pytest.mark.django_db, pytest.mark.urls("testproject.urls")]


@pytest.fixture(autouse=True)
def _policy(settings: Any) -> None:
    settings.MIDDLEWARE = [
        "testproject.catalogue.middleware.content_security_policy",
        *settings.MIDDLEWARE,
    ]


def _add(path: str, body: str = "", title: str = "", names: str = "") -> Any:
    from testproject.catalogue.models import File

    file = File.objects.create(
        path=path,
        size=len(body),
        sha256="0" * 64,
        mime_type="text/plain",
        title=title,
        word_count=len(body.split()),
        indexed_at=timezone.now(),
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO catalogue_text (rowid, title, names, path, body)"
            " VALUES (%s, %s, %s, %s, %s)",
            [file.pk, title, names, path, body],
        )
    return file


def _found(query: str) -> list[str]:
    from testproject.catalogue.search import search

    return [hit.file.path for hit in search(query).hits]


class _Inline(HTMLParser):
    """Collects what a policy without 'unsafe-inline' would block."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if tag == "style" or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.found += [name for name in names if name == "style" or name.startswith("on")]


def test_all_words_must_be_in_a_file() -> None:
    _add("/a", "red green")
    _add("/b", "red blue")
    assert _found("red blue") == ["/b"]


def test_words_in_quotes_must_follow_each_other() -> None:
    _add("/a", "one two three")
    _add("/b", "two one three")
    assert _found('"one two"') == ["/a"]


def test_the_last_word_may_be_the_beginning_of_one() -> None:
    _add("/a", "catalogue")
    assert (_found("cata"), _found('"cata"')) == (["/a"], [])


def test_a_hit_in_the_title_ranks_before_hits_in_the_body() -> None:
    _add("/body", "sheep sheep sheep wool")
    _add("/title", "wool " * 20, title="Sheep")
    assert _found("sheep") == ["/title", "/body"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "*",
        "NOT",
        "something AND",
        "NEAR(so el)",
        "title:something",
        "col : x",
        "^zzz",
        "(",
        "-zzz",
        "\ud800",
    ],
)
def test_operators_of_the_search_engine_are_plain_words(query: str) -> None:
    _add("/x", "something else")
    assert _found(query) == []


def test_the_page_escapes_what_files_contain(client: Client) -> None:
    evil = "<script>alert(1)</script>"
    _add(f"/tmp/{evil}", f"needle {evil} & more", title=f"A needle {evil}")
    page = client.get("/", {"q": "needle"}).content.decode()
    assert "<script>" not in page
    assert "<mark>needle</mark> &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_the_page_escapes_the_question(client: Client) -> None:
    page = client.get("/", {"q": '"><script>alert(1)</script>'}).content.decode()
    assert "<script>" not in page


def test_a_hit_is_marked_and_text_with_the_marks_own_characters_stays_text(client: Client) -> None:
    _add("/a", "before \x02<b>\x03 needle after")
    page = client.get("/", {"q": "needle"}).content.decode()
    assert "<mark>needle</mark> after" in page
    assert "<b>" not in page


def test_results_are_paged_and_the_links_keep_the_question(client: Client) -> None:
    for number in range(45):
        _add(f"/{number:02}", "common & ground")
    first = client.get("/", {"q": "common & ground"}).content.decode()
    assert "45 files" in first
    assert "page 1 of 3" in first
    (link,) = re.findall(r'rel="next" href="([^"]*)"', first)
    second = client.get("/" + link.replace("&amp;", "&")).content.decode()
    assert "page 2 of 3" in second
    assert len(set(re.findall(r'class="path">([^<]*)<', first + second))) == 40


@pytest.mark.parametrize(
    ("number", "shown"), [("0", 1), ("-1", 1), ("x", 1), ("99", 2), ("9" * 50, 1), ("²", 1)]
)
def test_a_page_that_does_not_exist_gives_the_nearest(
    client: Client, number: str, shown: int
) -> None:
    for count in range(25):
        _add(f"/{count}", "common")
    page = client.get("/", {"q": "common", "page": number})
    assert page.context["results"].page == shown


def test_the_front_page_tells_what_the_catalogue_holds(client: Client) -> None:
    _add("/a", "three small words")
    page = client.get("/").content.decode()
    assert "text/plain" in page
    assert "<dd>3</dd>" in page


def test_an_empty_catalogue_says_so(client: Client) -> None:
    assert "catalogue is empty" in client.get("/").content.decode()


def test_a_file_has_a_page_that_leads_to_its_archive(client: Client) -> None:
    archive = _add("/a.zip", title="a.zip")
    member = _add("/a.zip!/x.txt", "text")
    member.archive = archive
    member.save()
    assert f'href="/file/{archive.pk}/"' in client.get(f"/file/{member.pk}/").content.decode()
    assert f'href="/file/{member.pk}/"' in client.get(f"/file/{archive.pk}/").content.decode()
    assert client.get("/file/999999/").status_code == 404


def test_the_pages_work_under_a_policy_without_inline_script_or_style(client: Client) -> None:
    file = _add("/a", "needle")
    for address in ("/", "/?q=needle", "/?q=nothing", f"/file/{file.pk}/"):
        response = client.get(address)
        assert response["Content-Security-Policy"].startswith("default-src 'self';")
        parser = _Inline()
        parser.feed(response.content.decode())
        assert parser.found == []


def test_the_site_links_to_the_admin_and_takes_no_posts(client: Client) -> None:
    assert 'href="/admin/"' in client.get("/").content.decode()
    assert client.post("/").status_code == 405
