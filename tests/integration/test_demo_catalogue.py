"""The catalogue's tasks, run by hand on files made here."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.parsers.expat import ExpatError

import pytest
from django.db import connection

LIMITS = {
    "file_bytes": 20_000,
    "archive_bytes": 50_000,
    "unpacked_bytes": 40_000,
    "members": 5,
    "depth": 2,
}


@pytest.fixture
def enqueued() -> list[tuple[Any, Sequence[Any]]]:
    """The tasks that were enqueued, with their arguments."""
    return []


@pytest.fixture(autouse=True)
def tasks(
    settings: Any, db: None, monkeypatch: pytest.MonkeyPatch, enqueued: list[Any]
) -> ModuleType:
    """The tasks, under small limits; what they enqueue is kept, not run."""
    settings.LOCALQUEUE = {"default": {"LOCATION": ":memory:"}, "archives": {}}
    settings.CATALOGUE = LIMITS
    from testproject.catalogue import tasks

    def keep(task: Any, calls: Iterable[Sequence[Any]]) -> None:
        enqueued.extend((task, arguments) for arguments in calls)

    monkeypatch.setattr(tasks, "enqueue_many", keep)
    return tasks


@pytest.fixture
def index(tasks: ModuleType, enqueued: list[Any]) -> Callable[..., dict[str, Any]]:
    """Runs ``index_file`` and then every job that it and its members add."""
    from testproject.catalogue.archives import close_kept

    def run(path: Path | str) -> dict[str, Any]:
        result: dict[str, Any] = tasks.index_file.func(str(path))
        while enqueued:
            task, arguments = enqueued.pop(0)
            task.func(*arguments)
        close_kept()
        return result

    return run


def _file(path: Path | str) -> Any:
    from testproject.catalogue.models import File

    return File.objects.get(path=str(path))


def _paths() -> list[str]:
    from testproject.catalogue.models import File

    return list(File.objects.values_list("path", flat=True))


def _made(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _tarred(members: dict[str, bytes], mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def test_a_python_file_is_titled_by_its_docstring(index: Any, tmp_path: Path) -> None:
    source = b'"""Counts sheep.\n\nSlowly."""\nclass Flock:\n    def count(self): ...\n'
    index(_made(tmp_path / "sheep.py", source))
    file = _file(tmp_path / "sheep.py")
    assert (file.title, file.mime_type) == ("Counts sheep.", "text/x-python")
    assert file.size == len(source)
    assert file.sha256 == hashlib.sha256(source).hexdigest()


def test_names_of_functions_and_classes_are_indexed(index: Any, tmp_path: Path) -> None:
    source = b"""
class Ewe:
    if 1:
        pass
    else:
        try:
            pass
        except ValueError:
            async def shear(self):
                match self:
                    case _:
                        def wool(): x = lambda: (1 if x else 2)
"""
    index(_made(tmp_path / "a.py", source))
    with connection.cursor() as cursor:
        cursor.execute("SELECT names FROM catalogue_text")
        assert cursor.fetchall() == [("Ewe shear wool",)]


def test_a_source_file_in_its_declared_encoding_is_read(index: Any, tmp_path: Path) -> None:
    source = '# -*- coding: latin-1 -*-\n"""Über alles."""\n'.encode("latin-1")
    index(_made(tmp_path / "a.py", source))
    assert _file(tmp_path / "a.py").title == "Über alles."


def test_a_text_file_is_titled_by_its_first_line_with_words(index: Any, tmp_path: Path) -> None:
    index(_made(tmp_path / "a.md", b"\n---\n# Of  mice #\n\nand men\n"))
    file = _file(tmp_path / "a.md")
    assert (file.title, file.word_count) == ("Of mice", 7)


def test_an_html_file_gives_its_title_and_no_script(index: Any, tmp_path: Path) -> None:
    from testproject.catalogue.search import search

    page = b"<title>A page</title><script>hiddenword</script><p>shownword</p>"
    index(_made(tmp_path / "a.html", page))
    assert _file(tmp_path / "a.html").title == "A page"
    assert (search("shownword").total, search("hiddenword").total) == (1, 0)


def test_a_text_file_with_a_byte_order_mark_is_read_by_it(index: Any, tmp_path: Path) -> None:
    index(_made(tmp_path / "a.txt", "zwölf Wörter".encode("utf-16")))
    assert _file(tmp_path / "a.txt").title == "zwölf Wörter"


def test_a_binary_file_is_catalogued_without_words(index: Any, tmp_path: Path) -> None:
    index(_made(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\x00\x00"))
    index(_made(tmp_path / "blob", b"\x00\x01\x02"))
    assert _file(tmp_path / "a.png").mime_type == "image/png"
    blob = _file(tmp_path / "blob")
    assert (blob.mime_type, blob.word_count) == ("application/octet-stream", 0)


def test_an_empty_file_is_catalogued(index: Any, tmp_path: Path) -> None:
    index(_made(tmp_path / "__init__.py", b""))
    file = _file(tmp_path / "__init__.py")
    assert (file.size, file.title, file.word_count) == (0, "", 0)


def test_a_job_that_runs_twice_leaves_one_row_and_one_text(index: Any, tmp_path: Path) -> None:
    from testproject.catalogue.search import search

    path = _made(tmp_path / "a.txt", b"onceonly")
    assert index(path)["file"] == index(path)["file"]
    assert search("onceonly").total == 1


def test_a_changed_file_replaces_its_row_and_words(index: Any, tmp_path: Path) -> None:
    from testproject.catalogue.search import search

    path = _made(tmp_path / "a.txt", b"beforehand")
    index(path)
    path.write_bytes(b"afterwards and more")
    index(path)
    assert _file(path).word_count == 3
    assert (search("beforehand").total, search("afterwards").total) == (0, 1)


def test_a_file_that_is_deleted_from_the_catalogue_is_not_found(index: Any, tmp_path: Path) -> None:
    from testproject.catalogue.search import search

    path = _made(tmp_path / "a.txt", b"fleeting")
    index(path)
    _file(path).delete()
    assert search("fleeting").total == 0


def test_a_name_that_is_not_utf8_is_catalogued_with_escapes(index: Any, tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    with open(path, "wb") as stream:
        stream.write(b"coffee")
    index(os.fsdecode(path))
    assert _paths() == [f"{tmp_path}/caf\\udce9.txt"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_the_members_of_a_tar_are_catalogued(index: Any, tmp_path: Path, mode: str) -> None:
    suffix = mode.partition(":")[2]
    path = _made(
        tmp_path / f"a.tar{'.' if suffix else ''}{suffix}",
        _tarred({"one.txt": b"first", "sub/two.py": b'"""Second."""\n'}, mode),
    )
    index(path)
    assert _file(f"{path}!/sub/two.py").title == "Second."
    assert [m.name for m in _file(path).members.all()] == ["one.txt", "two.py"]


def test_the_members_of_a_zip_in_a_zip_are_catalogued(index: Any, tmp_path: Path) -> None:
    inner = _zipped({"deep.txt": b"deep down"})
    path = _made(tmp_path / "a.zip", _zipped({"inner.zip": inner, "flat.txt": b"flat"}))
    index(path)
    assert _file(f"{path}!/inner.zip!/deep.txt").archive == _file(f"{path}!/inner.zip")
    assert len(_paths()) == 4


def test_an_archive_that_is_indexed_twice_leaves_one_row_a_member(
    index: Any, tmp_path: Path
) -> None:
    path = _made(tmp_path / "a.zip", _zipped({"x": b"1", "y": b"2"}))
    index(path)
    index(path)
    assert _paths() == [str(path), f"{path}!/x", f"{path}!/y"]


def test_a_member_that_left_its_archive_leaves_the_catalogue(index: Any, tmp_path: Path) -> None:
    path = _made(tmp_path / "a.zip", _zipped({"x": b"1", "y": b"2"}))
    index(path)
    path.write_bytes(_zipped({"y": b"2"}))
    index(path)
    assert _paths() == [str(path), f"{path}!/y"]


def test_members_are_jobs_of_their_own_in_the_queue_of_archives(
    tasks: ModuleType, enqueued: list[Any], tmp_path: Path
) -> None:
    path = _made(tmp_path / "a.zip", _zipped({"x": b"1", "y": b"2"}))
    tasks.index_file.func(str(path))
    assert [arguments for _, arguments in enqueued] == [[str(path), ["x"]], [str(path), ["y"]]]
    assert {task.queue_name for task, _ in enqueued} == {"archives"}


def test_archives_within_too_many_others_are_refused(tasks: ModuleType, tmp_path: Path) -> None:
    from testproject.catalogue.limits import ArchiveTooDeep

    data = b"at the bottom"
    for _ in range(3):
        data = _zipped({"in.zip": data})
    path = _made(tmp_path / "a.zip", data)
    with pytest.raises(ArchiveTooDeep, match="lies in 3 archives; at most 2"):
        tasks.index_member.func(str(path), ["in.zip", "in.zip", "in.zip"])


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("broken.zip", b"PK\x03\x04 and no more", zipfile.BadZipFile),
        ("text.zip", b"not a zip at all", zipfile.BadZipFile),
        ("broken.tar", b"not a tar at all", tarfile.ReadError),
        ("cut.tar.bz2", bz2.compress(bytes(10_000))[:20], EOFError),
        ("broken.py", b"def f(:\n", SyntaxError),
        ("latin.txt", "Ärger".encode("latin-1"), UnicodeDecodeError),
        ("broken.json", b'{"a": ', json.JSONDecodeError),
        ("broken.xml", b"<a><b></a>", ExpatError),
    ],
)
def test_a_malformed_file_raises_its_parsers_error_naming_the_file(
    tasks: ModuleType, tmp_path: Path, name: str, data: bytes, error: type[Exception]
) -> None:
    path = _made(tmp_path / name, data)
    with pytest.raises(error) as raised:
        tasks.index_file.func(str(path))
    assert raised.value.__notes__ == [f"The file is {path}"]
    assert _paths() == []


def test_a_member_with_a_wrong_checksum_is_a_bad_zip_file(
    tasks: ModuleType, index: Any, tmp_path: Path
) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.txt", b"untouched")
    path = _made(tmp_path / "a.zip", stream.getvalue().replace(b"untouched", b"tampered!"))
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        index(path)


def test_a_file_that_is_too_large_is_refused_unread(tasks: ModuleType, tmp_path: Path) -> None:
    from testproject.catalogue.limits import FileTooLarge

    path = _made(tmp_path / "a.txt", b"x" * 20_001)
    with pytest.raises(FileTooLarge, match="has 20001 bytes; at most 20000"):
        tasks.index_file.func(str(path))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("large.zip", b"PK\x03\x04" + bytes(50_000)),
        ("bomb.zip", _zipped({"a": bytes(20_001), "b": bytes(20_000)})),
        ("bomb.tar.gz", _tarred({"a": bytes(20_001), "b": bytes(20_000)}, "w:gz")),
        ("bomb.tar.xz", _tarred({"a": bytes(10_000_000)}, "w:xz")),
        ("many.zip", _zipped({str(number): b"" for number in range(6)})),
        ("many.tar", _tarred({str(number): b"" for number in range(6)})),
    ],
)
def test_an_archive_that_would_unpack_to_too_much_is_refused(
    tasks: ModuleType, tmp_path: Path, name: str, data: bytes
) -> None:
    from testproject.catalogue.limits import ArchiveTooLarge

    with pytest.raises(ArchiveTooLarge):
        tasks.index_file.func(str(_made(tmp_path / name, data)))


def test_a_member_that_is_too_large_is_refused_and_its_archive_kept(
    tasks: ModuleType, index: Any, tmp_path: Path
) -> None:
    from testproject.catalogue.limits import FileTooLarge

    path = _made(tmp_path / "a.zip", _zipped({"big.bin": bytes(20_001)}))
    with pytest.raises(FileTooLarge, match=r"big\.bin has 20001 bytes"):
        index(path)
    assert _paths() == [str(path)]


def test_a_file_that_is_gone_raises_file_not_found(tasks: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tasks.index_file.func(str(tmp_path / "gone"))


def test_a_pipe_is_refused_instead_of_waited_for(tasks: ModuleType, tmp_path: Path) -> None:
    from testproject.catalogue.limits import NotARegularFile

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotARegularFile):
        tasks.index_file.func(str(tmp_path / "pipe"))


def test_a_file_that_may_not_be_read_raises_permission_error(
    tasks: ModuleType, tmp_path: Path
) -> None:
    path = _made(tmp_path / "secret.txt", b"secret")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may read everything
        os.seteuid(65_534)
    try:
        with pytest.raises(PermissionError):
            tasks.index_file.func(str(path))
    finally:
        os.seteuid(user)


def test_the_members_of_a_mended_archive_are_read_from_the_new_file(
    tasks: ModuleType, tmp_path: Path
) -> None:
    path = _made(tmp_path / "a.zip", _zipped({"a.py": b"def f(:"}))
    tasks.index_file.func(str(path))
    with pytest.raises(SyntaxError):
        tasks.index_member.func(str(path), ["a.py"])
    path.write_bytes(_zipped({"a.py": b'"""Mended."""'}))
    tasks.index_member.func(str(path), ["a.py"])
    assert _file(f"{path}!/a.py").title == "Mended."
