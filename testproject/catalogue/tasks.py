"""The jobs: read one file, or one member of an archive, and put it into the catalogue.

Each may run twice: a file has one row, found by its path. A file that can't be read or
is malformed raises, and its job ends as a dead letter with that error.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any

from django.db import connection, transaction
from django.utils import timezone

from testproject.catalogue.archives import open_archive, open_regular, read_member
from testproject.catalogue.kinds import HEAD, detect
from testproject.catalogue.limits import FileTooLarge, limits
from testproject.catalogue.models import File
from testproject.catalogue.texts import MAX_TITLE, Text, read_text

try:
    from django.tasks import default_task_backend, task
except ImportError:  # Django 5.2
    from django_tasks import default_task_backend, task

CHUNK = 1 << 20
ENQUEUERS = 8
MEMBER = "!/"


@task
def index_file(path: str) -> dict[str, Any]:
    """Catalogue a file on disk; returns its row's id, its type and what it gave."""
    with _naming(path), open_regular(path) as stream:
        return _index(stream, path, [])


@task(queue_name="archives")
def index_member(path: str, members: list[str]) -> dict[str, Any]:
    """Catalogue a file in an archive: ``members`` as ``read_member`` takes them."""
    with _naming(path, members):
        return _index(io.BytesIO(read_member(path, members)), path, members)


def enqueue_many(task: Any, calls: Iterable[Sequence[Any]]) -> None:
    """Enqueue one call of the task for each list of arguments, in any order.

    By several threads: those that wait for the disk at the same time share its sync.
    """
    with ThreadPoolExecutor(ENQUEUERS) as pool:
        for _ in pool.map(lambda arguments: task.enqueue(*arguments), calls):
            pass


def file_of(job_id: str) -> str:
    """Return the path of the file that a job is about."""
    path, members = (*default_task_backend.get_result(job_id).args, [])[:2]
    return shown_path(path, members)


@contextmanager
def _naming(path: str, members: Sequence[str] = ()) -> Iterator[None]:
    """Say in the traceback which file it was: few errors of parsers do."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The file is {shown_path(path, members)}")
        raise


def shown_path(path: str, members: Sequence[str] = ()) -> str:
    """Return the path under which a file is catalogued.

    Names that are not UTF-8 keep their bytes as escapes: a database takes no others.
    """
    return MEMBER.join([path, *members]).encode("utf-8", "backslashreplace").decode()


def _index(stream: IO[bytes], path: str, members: list[str]) -> dict[str, Any]:
    shown = shown_path(path, members)
    name = PurePosixPath(shown).name
    kind = detect(name, stream.read(HEAD))
    inside: list[str] = []
    if kind.is_archive:
        archive = open_archive(kind, stream)
        try:
            inside = archive.names()
        finally:
            archive.close()
        size, digest = _hash(stream)
        text = Text(title=name)
    else:
        data = _read(stream, shown)
        size, digest = len(data), hashlib.sha256(data).hexdigest()
        text = read_text(kind, data, shown)
    file = File(
        path=shown,
        size=size,
        sha256=digest,
        mime_type=kind.mime_type,
        title=text.title[:MAX_TITLE],
        word_count=text.word_count,
        indexed_at=timezone.now(),
    )
    _store(file, text, shown_path(path, members[:-1]) if members else None, inside)
    # After the commit, so that no member comes before its archive; a crash in between
    # makes this job run again.
    if inside:
        enqueue_many(index_member, [[path, [*members, member]] for member in inside])
    return {"file": file.pk, "type": kind.mime_type, "words": file.word_count, "jobs": len(inside)}


def _read(stream: IO[bytes], shown: str) -> bytes:
    allowed = limits().file_bytes
    size = stream.seek(0, os.SEEK_END)
    if size > allowed:
        raise FileTooLarge(f"{shown} has {size} bytes; at most {allowed} are read.")
    stream.seek(0)
    return stream.read(allowed)


def _hash(stream: IO[bytes]) -> tuple[int, str]:
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return stream.tell(), digest.hexdigest()


def _store(file: File, text: Text, archive: str | None, inside: list[str]) -> None:
    """Write the row and its words in one transaction, and drop members that are gone."""
    with transaction.atomic():
        if archive is not None:
            file.archive = File.objects.only("pk").get(path=archive)
        columns = [f.name for f in File._meta.concrete_fields if not f.primary_key]
        File.objects.bulk_create(
            [file],
            update_conflicts=True,
            unique_fields=["path"],
            update_fields=[name for name in columns if name != "path"],
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO catalogue_text (rowid, title, names, path, body)"
                " VALUES (%s, %s, %s, %s, %s)",
                [file.pk, text.title, text.names, file.path, text.body],
            )
        wanted = {file.path + MEMBER + shown_path(name) for name in inside}
        gone = [pk for pk, path in file.members.values_list("pk", "path") if path not in wanted]
        if gone:
            File.objects.filter(pk__in=gone).delete()
