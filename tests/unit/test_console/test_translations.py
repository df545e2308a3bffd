"""Every text of the console, in every language that it is shipped in."""

from __future__ import annotations

import ast
import gettext
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import translation

import django_localqueue
from django_localqueue import queues
from tests.unit.test_console.tools import LIST, OVERVIEW, Page

PACKAGE = Path(django_localqueue.__file__).parent
LANGUAGES = ("en", "de", "es", "pt_BR", "ar")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]")


def entries(path):
    """Return the entries of a .po file: msgid, plural or None, the translations."""
    found = []
    for block in path.read_text().split("\n\n")[1:]:
        parts = {}
        for name, text in re.findall(r"^(msg\w+(?:\[\d\])?) ((?:\".*\"\n?)+)", block, re.M):
            parts[name] = "".join(ast.literal_eval(line) for line in text.strip().splitlines())
        if "msgid" in parts:
            forms = [value for name, value in parts.items() if name.startswith("msgstr")]
            found.append((parts["msgid"], parts.get("msgid_plural"), forms))
    return found


def po(language, package=PACKAGE):
    return package / "locale" / language / "LC_MESSAGES" / "django.po"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The msgids that the source has now."""
    if shutil.which("xgettext") is None:
        pytest.skip("xgettext was not found on PATH; install gettext.")
    folder = tmp_path_factory.mktemp("source") / "django_localqueue"
    kept = shutil.ignore_patterns("__pycache__", "*.so", "*.mo", "static")
    shutil.copytree(PACKAGE, folder, ignore=kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call_command("makemessages", locale=["de"], no_location=True, no_obsolete=True, verbosity=0)
    return {msgid for msgid, _plural, _forms in entries(po("de", folder))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_missing_and_none_is_left_over(language, texts):
    assert {msgid for msgid, _plural, _forms in entries(po(language))} == texts


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language):
    assert "fuzzy" not in po(language).read_text()
    for msgid, _plural, forms in entries(po(language)):
        assert forms, msgid
        assert all(forms), msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_same_placeholders(language):
    for msgid, plural, forms in entries(po(language)):
        wanted = sorted(PLACEHOLDER.findall(plural or msgid))
        for form in forms:
            assert sorted(PLACEHOLDER.findall(form)) == wanted, msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_file_is_that_of_the_text(language):
    with po(language).with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for msgid, plural, forms in entries(po(language)):
        if plural is None:
            assert compiled.gettext(msgid) == forms[0]
        else:
            assert compiled.ngettext(msgid, plural, 1) in forms


def test_the_text_is_sound_for_gettext():
    if shutil.which("msgfmt") is None:
        pytest.skip("msgfmt was not found on PATH; install gettext.")
    for language in LANGUAGES:
        command = ["msgfmt", "--check", "-o", "/dev/null", str(po(language))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("language", "word"),
    [
        ("de", "Tote Briefe"),
        ("es", "Cartas muertas"),
        ("pt-br", "Cartas mortas"),
        ("ar", "الرسائل الميتة"),
    ],
)
def test_the_pages_speak_the_language_of_the_project(language, word, settings, fail, operator):
    settings.LANGUAGE_CODE = language
    (id,) = fail(1)
    translation.activate(language)
    html = operator.get(LIST).content.decode()
    assert word in html
    assert ('dir="rtl"' in html) == (language == "ar")
    for address in (OVERVIEW, f"{LIST}errors/", f"{LIST}{'default_2F' + id}/change/"):
        response = operator.get(address)
        assert response.status_code == 200
        assert Page(response.content.decode()).forbidden == []
    translation.deactivate()


def test_numbers_are_those_of_the_language(settings, operator):
    settings.LANGUAGE_CODE = "de"
    settings.USE_THOUSAND_SEPARATOR = True
    queues["default"].put_many(list(range(1_234)))
    assert "1.234 Jobs" in Page(operator.get(f"{LIST}?state=ready").content.decode()).text
