"""Who a worker is."""

from __future__ import annotations

import os
import secrets
import socket
import sys


def default_name() -> str:
    """Return a name that no other worker has."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(3)}"


def package_version() -> str:
    """Return this package's version, empty where it isn't installed."""
    engine = sys.modules.get("django_localqueue._native")
    if engine is not None:  # of the same version, and metadata would take 0.8 MB
        return str(engine.__version__)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("django-localqueue")
    except PackageNotFoundError:
        return ""
