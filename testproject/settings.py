"""Settings of the testproject, for either queue: that on SQLite, and, where ``DEMO_RQLITE`` of
the environment holds the URLs of nodes, that on rqlite."""

from __future__ import annotations

import os
import secrets
from importlib.util import find_spec
from typing import Any

from testproject.state import BASE_DIR as BASE_DIR
from testproject.state import STATE as STATE


def _secret_key() -> str:
    """Return the key of this state folder, made on first use and never in the repository."""
    path = STATE / "secret-key"
    if not path.exists():
        fresh = STATE / f"secret-key.{os.getpid()}"
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(50))
        try:
            os.link(fresh, path)  # unlike a rename it never replaces what another process made
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text()


SECRET_KEY = _secret_key()
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ROOT_URLCONF = "testproject.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
LOGIN_URL = "admin:login"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_localqueue",
    "testproject.catalogue",
]
if find_spec("django.tasks") is None:  # Django 5.2: the backport brings its checks and signals
    INSTALLED_APPS.append("django_tasks")

MIDDLEWARE = [
    "testproject.catalogue.middleware.content_security_policy",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {
        "django.request": {"handlers": ["stderr"], "level": "ERROR"},  # Django mails them else
        "django.server": {"level": "ERROR"},  # not a line for each request
    },
}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": STATE / "catalogue.sqlite3",
        "CONN_MAX_AGE": None,  # a worker's thread keeps its connection from job to job
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;",
            "transaction_mode": "IMMEDIATE",  # writers queue up instead of failing half-way
            "timeout": 60,
        },
    }
}

# A short lease: after a kill -9 of a worker nobody wants to watch for a minute.
LOCALQUEUE: dict[str, dict[str, Any]] = {
    "default": {"OPTIONS": {"lease_seconds": 15}},
    "archives": {"OPTIONS": {"lease_seconds": 15}},
}
if nodes := os.environ.get("DEMO_RQLITE"):  # the URLs of a cluster, with commas
    LOCALQUEUE["default"]["BACKEND"] = "django_localqueue.backends.rqlite.RqliteQueue"
    LOCALQUEUE["default"]["LOCATION"] = nodes.split(",")
else:  # both queues in one file, which Django doesn't open: STATE / "queue" / "localqueue.db"
    LOCALQUEUE["default"]["LOCATION"] = STATE / "queue"
LOCALQUEUE_WORKER = {"HEARTBEAT_INTERVAL": 5}
TASKS = {"default": {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}
