"""Full-text search over the catalogue: what people type, ranked files, marked excerpts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db import connection
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from testproject.catalogue.models import File

PAGE_SIZE = 20
MAX_QUERY = 200
EXCERPT_WORDS = 32
# Set around each hit by SQLite; control characters, so that text rarely has them. Where it
# does, a wrong word is marked and nothing worse: the text is escaped after the split.
START, END = "\x02", "\x03"
# A hit in the title weighs most, then one in the path, a name, the body.
RANK = "bm25(20.0, 1.0, 10.0, 0.5)"

_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Hit:
    """A file that matches, with its title and an excerpt, escaped, the words marked."""

    file: File
    title: SafeString
    excerpt: SafeString


@dataclass(frozen=True, slots=True)
class Results:
    """One page of hits."""

    hits: list[Hit]
    total: int
    page: int
    pages: int


def match_expression(query: str) -> str:
    """Return the FTS5 expression for what was typed, or "" where it has no word.

    All words must be there; words in double quotes in that order; the last word may be the
    beginning of one. No operator of FTS5 can be reached: every term is a quoted string.
    """
    terms = []
    for phrase, word in _TERM.findall(query[:MAX_QUERY]):
        words = re.findall(r"\w+", phrase or word)
        if words:
            terms.append('"' + " ".join(words) + '"')
    if terms and not query.rstrip().endswith('"'):
        terms[-1] += "*"
    return " ".join(terms)


def search(query: str, page: int = 1) -> Results:
    """Return a page of the files that match, best first; a page past the end is the last."""
    expression = match_expression(query)
    if not expression:
        return Results([], 0, 1, 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM catalogue_text WHERE catalogue_text MATCH %s", [expression]
        )
        total = cursor.fetchone()[0]
        pages = max(1, -(-total // PAGE_SIZE))
        page = min(max(1, page), pages)
        cursor.execute(
            "SELECT rowid, highlight(catalogue_text, 0, %s, %s),"
            " snippet(catalogue_text, 3, %s, %s, '…', %s)"
            " FROM catalogue_text WHERE catalogue_text MATCH %s AND rank MATCH %s"
            " ORDER BY rank, rowid LIMIT %s OFFSET %s",
            [
                *(START, END, START, END, EXCERPT_WORDS),
                *(expression, RANK, PAGE_SIZE, (page - 1) * PAGE_SIZE),
            ],
        )
        rows = cursor.fetchall()
    files = File.objects.in_bulk([row[0] for row in rows])
    hits = [
        Hit(files[pk], marked(title), marked(excerpt)) for pk, title, excerpt in rows if pk in files
    ]
    return Results(hits, total, page, pages)


def marked(text: str) -> SafeString:
    """Return text as HTML: escaped, with ``<mark>`` where SQLite set its marks."""
    first, *rest = text.split(START)
    parts = [("", first)]
    for piece in rest:
        hit, _, after = piece.partition(END)
        parts.append((format_html("<mark>{}</mark>", hit), after))
    return format_html_join("", "{}{}", parts)
