"""Who a worker is."""

from __future__ import annotations

import os
import secrets
import socket
from importlib.metadata import PackageNotFoundError, version


def default_name() -> str:
    """Return a name that no other worker has."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(3)}"


def package_version() -> str:
    """Return this package's version, empty where it isn't installed."""
    try:
        return version("django-localqueue")
    except PackageNotFoundError:
        return ""
