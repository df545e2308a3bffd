"""What the distribution holds and what the modules may import."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import django_localqueue
from django_localqueue import _native

PACKAGE = Path(django_localqueue.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())


def test_django_is_all_that_is_required(project: dict[str, Any]) -> None:
    assert project["project"]["dependencies"] == ["Django>=5.2"]


@pytest.mark.parametrize("extra", ["tasks", "schedules", "rqlite", "rqlite-async", "dev"])
def test_the_extras_are_there(project: dict[str, Any], extra: str) -> None:
    assert project["project"]["optional-dependencies"][extra]


def test_the_version_is_that_of_the_engine() -> None:
    assert importlib.metadata.version("django-localqueue") == _native.__version__


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_native.pyi").is_file()


def test_the_engine_under_test_is_a_release_build() -> None:
    assert _native.BUILD_PROFILE == "release"


def test_every_public_name_can_be_imported() -> None:
    for name in django_localqueue.__all__:
        assert getattr(django_localqueue, name) is not None
    assert set(django_localqueue.__all__) <= set(dir(django_localqueue))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        django_localqueue.nope  # noqa: B018


def test_only_the_sqlite_backend_imports_the_engine() -> None:
    users = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            if any("_native" in str(name) for name in names):
                users.add(name)
    assert users
    assert all(name.startswith("backends/sqlite/") for name in users), users


def test_only_conf_reads_the_settings_of_this_app() -> None:
    readers = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if (isinstance(node, ast.Attribute) and node.attr.startswith("LOCALQUEUE")) or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "getattr"
                and isinstance(node.args[1], ast.Constant)
                and str(node.args[1].value).startswith("LOCALQUEUE")
            ):
                readers.add(name)
    assert readers == {"conf/reading.py"}


def test_every_module_says_what_it_is_for() -> None:
    for name, tree in modules():
        if name.endswith("__init__.py") and not tree.body:
            continue
        if "/migrations/" in f"/{name}":
            continue
        assert ast.get_docstring(tree), f"{name} has no docstring"


def test_the_makefile_explains_each_target_that_is_for_people() -> None:
    text = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert explained == {
        *("help", "setup", "build", "fmt", "lint", "stubs", "test", "test-full"),
        *("demo", "bench", "chaos", "crash", "clean"),
    }
