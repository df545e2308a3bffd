"""What type a file is: by its first bytes where they are telling, else by its name."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from pathlib import PurePosixPath

HEAD = 4_096  # bytes that are looked at
TAR_MAGIC = slice(257, 262)

PYTHON = "text/x-python"
ZIP = "application/zip"
TAR = "application/x-tar"
JSON = "application/json"
HTML = "text/html"
XML = "application/xml"
PLAIN = "text/plain"
BINARY = "application/octet-stream"

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"\x7fELF", "application/x-elf"),
    (b"!<arch>\n", "application/x-archive"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"FORM", "audio/x-aiff"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
)
_ARCHIVE_NAMES = (
    ((".zip", ".whl", ".jar", ".egg"), ZIP),
    ((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"), TAR),
)
_NAMES = {
    ".py": PYTHON,
    ".pyi": PYTHON,
    ".pyw": PYTHON,
    ".json": JSON,
    ".html": HTML,
    ".htm": HTML,
    ".xml": XML,
    ".svg": "image/svg+xml",
    ".md": "text/markdown",
    ".rst": "text/x-rst",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".js": "text/javascript",
    ".sh": "application/x-sh",
    ".cfg": PLAIN,
    ".ini": PLAIN,
}
_TEXT_TYPES = {
    JSON,
    XML,
    "image/svg+xml",
    "application/javascript",
    "application/toml",
    "application/yaml",
    "application/x-sh",
}
_by_name = mimetypes.MimeTypes()  # the built-in table: the same on every machine


@dataclass(frozen=True, slots=True)
class Kind:
    """A MIME type, and whether the file has text to read or members to go into."""

    mime_type: str

    @property
    def is_archive(self) -> bool:
        return self.mime_type in (ZIP, TAR)

    @property
    def is_xml(self) -> bool:
        return self.mime_type == XML or self.mime_type.endswith("+xml")

    @property
    def is_text(self) -> bool:
        kind = self.mime_type
        return kind.startswith("text/") or kind in _TEXT_TYPES or self.is_xml


def detect(name: str, head: bytes) -> Kind:
    """Return the kind of a file.

    A name that promises an archive or text is believed, so that a file that breaks the
    promise fails when it is read instead of passing for something else.

    Args:
        name: the file's name, without folders.
        head: its first ``HEAD`` bytes, or all where it has fewer.
    """
    lower = name.lower()
    for endings, mime_type in _ARCHIVE_NAMES:
        if lower.endswith(endings):
            return Kind(mime_type)
    if head[TAR_MAGIC] == b"ustar":
        return Kind(TAR)
    for signature, mime_type in _SIGNATURES:
        if head.startswith(signature):
            return Kind(mime_type)
    if head.startswith(b"RIFF") and len(head) >= 12:
        form = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
        return Kind(form.get(head[8:12], BINARY))
    suffix = PurePosixPath(lower).suffix
    named = _NAMES.get(suffix) or _by_name.guess_type("x" + suffix)[0]
    return Kind(named or _sniff(head))


def _sniff(head: bytes) -> str:
    if b"\x00" in head:
        return BINARY
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character cut in two by the end of the head is no sign of anything.
        if len(head) < HEAD or error.start < len(head) - 3:
            return BINARY
    return PYTHON if head.startswith(b"#!") and b"python" in head.partition(b"\n")[0] else PLAIN
