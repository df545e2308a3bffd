"""How much the catalogue reads of a file before it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings


class RefusedError(Exception):
    """A file that is not read, on purpose."""


class FileTooLarge(RefusedError):
    """A file has more bytes than are read into memory."""


class ArchiveTooLarge(RefusedError):
    """An archive is, or would unpack to, more than is allowed."""


class ArchiveTooDeep(RefusedError):
    """An archive lies in too many others."""


class NotARegularFile(RefusedError):
    """A pipe, a socket or a device: reading it may never end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, members and levels; the setting ``CATALOGUE`` may give others by these names."""

    file_bytes: int = 16 << 20
    archive_bytes: int = 256 << 20
    unpacked_bytes: int = 256 << 20
    members: int = 5_000
    depth: int = 3


def limits() -> Limits:
    """Return the limits in force."""
    return Limits(**getattr(settings, "CATALOGUE", {}))
