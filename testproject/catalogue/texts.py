"""The title, the names and the text of a file; malformed files raise what their parser raises."""

from __future__ import annotations

import ast
import codecs
import io
import json
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from xml.parsers import expat

from testproject.catalogue import kinds
from testproject.catalogue.kinds import Kind

MAX_TITLE = 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Text:
    """What the search indexes of a file."""

    title: str = ""
    names: str = ""
    body: str = ""

    @property
    def word_count(self) -> int:
        return len(self.body.split())


def read_text(kind: Kind, data: bytes, filename: str) -> Text:
    """Return the text of a file of this kind; empty for what has none.

    Args:
        filename: names the file in a ``SyntaxError``.

    Raises:
        UnicodeDecodeError, SyntaxError, json.JSONDecodeError, expat.ExpatError: malformed.
    """
    if not kind.is_text:
        return Text()
    if kind.mime_type == kinds.PYTHON:
        return _python(data, filename)
    if kind.is_xml:
        return _xml(data)
    body = _decode(data)
    if kind.mime_type == kinds.JSON:
        json.loads(body)
        return Text(body=body)
    if kind.mime_type == kinds.HTML:
        return _html(body)
    return Text(title=_first_line(body), body=body)


def _decode(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding)
    return data.decode("utf-8")


def _first_line(text: str) -> str:
    """The first line with a letter or digit in it, without the marks of a heading."""
    for line in text[:10_000].splitlines():
        if any(character.isalnum() for character in line):
            return " ".join(line.strip("#*=-/ \t").split())[:MAX_TITLE]
    return ""


def _python(data: bytes, filename: str) -> Text:
    tree = ast.parse(data, filename)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    title = _first_line(ast.get_docstring(tree) or "")
    return Text(title, " ".join(dict.fromkeys(_defined(tree))), data.decode(encoding))


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions and classes; ``ast.walk`` would go through every expression."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            nodes += getattr(node, part, ())


def _xml(data: bytes) -> Text:
    parts: list[str] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.CharacterDataHandler = parts.append
    parser.Parse(data, True)
    body = " ".join(parts)
    return Text(_first_line(body), "", body)


class _Page(HTMLParser):
    """Collects the title and the words that a reader would see."""

    HIDDEN = frozenset({"script", "style", "template"})

    def __init__(self) -> None:
        super().__init__()
        self.title: list[str] = []
        self.parts: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" or tag in self.HIDDEN:
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title.append(data)
        elif not self.inside:
            self.parts.append(data)


def _html(source: str) -> Text:
    page = _Page()
    page.feed(source)
    page.close()
    body = " ".join(page.parts)
    return Text(_first_line("".join(page.title)) or _first_line(body), "", body)
