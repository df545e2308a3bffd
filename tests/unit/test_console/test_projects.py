"""Projects that are not as most are: each in a process of its own, with its own settings."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PEOPLE = {
    "__init__.py": "",
    "own_admin.py": """
        from django.contrib.admin.apps import AdminConfig

        class OwnAdmin(AdminConfig):
            default_site = "people.site.OwnSite"
    """,
    "site.py": """
        from django.contrib.admin import AdminSite

        class OwnSite(AdminSite):
            site_header = "Our own site"
    """,
    "models.py": """
        import uuid
        from django.contrib.auth.models import (
            AbstractBaseUser, BaseUserManager, PermissionsMixin,
        )
        from django.db import models

        class People(BaseUserManager):
            def create_superuser(self, email, password=None):
                user = self.model(email=email, is_superuser=True)
                user.set_password(password)
                user.save()
                return user

        class Person(AbstractBaseUser, PermissionsMixin):
            id = models.UUIDField(primary_key=True, default=uuid.uuid4)
            email = models.EmailField(unique=True)
            is_active = models.BooleanField(default=True)
            is_staff = models.BooleanField(default=True)
            USERNAME_FIELD = "email"
            objects = People()
    """,
    "router.py": """
        class LogsElsewhere:
            def _of(self, label):
                return "logs" if label in ("admin", "django_localqueue") else "default"
            def db_for_read(self, model, **hints):
                return self._of(model._meta.app_label)
            def db_for_write(self, model, **hints):
                return self._of(model._meta.app_label)
            def allow_relation(self, one, other, **hints):
                return True
            def allow_migrate(self, db, app_label, **hints):
                return db == self._of(app_label) or app_label in ("auth", "contenttypes", "people")
    """,
}

SITE = """
import os, sys
import django
from pathlib import Path
from tests import settings as base
from django.conf import settings

values = {name: getattr(base, name) for name in dir(base) if name.isupper()}
values["ROOT_URLCONF"] = "tests.urls"
values["ALLOWED_HOSTS"] = ["*"]
values["LOCALQUEUE"] = {"default": {"LOCATION": Path(os.environ["LQ_STORE"])}}
CHANGES
settings.configure(**values)
django.setup()
from django.core.management import call_command
for alias in settings.DATABASES:
    call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
if "logs" in settings.DATABASES:  # the users are in another file: no constraint can span both
    from django.db import connections
    connections["logs"].cursor().execute("PRAGMA foreign_keys = OFF")
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.test import Client
from django_localqueue import queues
queue = queues["default"]
queue.put("x")
job = queue.get_nowait()
queue.fail(job, "no")
User = get_user_model()
user = User.objects.create_superuser(**{User.USERNAME_FIELD: "ann@example.com", "password": "x"})
client = Client()
client.force_login(user)
BASE = "/admin/django_localqueue"
for address in ("/admin/", f"{BASE}/queue/", f"{BASE}/job/", f"{BASE}/job/errors/",
                f"{BASE}/worker/", f"{BASE}/schedule/", f"{BASE}/job/default_2F{job.id}/change/"):
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
response = client.post(f"{BASE}/job/default_2F{job.id}/retry/")
assert response.status_code == 302
assert queue.lookup(job.id).state == "ready"
entry = LogEntry.objects.get()
assert str(entry.user_id) == str(user.pk)
html = client.get(f"{BASE}/job/default_2F{job.id}/change/").content.decode()
assert "Retried." in html
CHECKS
queues.close_all()
print("whole")
"""


def run(tmp_path, changes, checks=""):
    """Run the site with changed settings; whatever is wrong ends it."""
    folder = tmp_path / "people"
    folder.mkdir()
    for name, text in PEOPLE.items():
        (folder / name).write_text(textwrap.dedent(text))
    code = SITE.replace("CHANGES", textwrap.dedent(changes)).replace(
        "CHECKS", textwrap.dedent(checks)
    )
    environment = os.environ | {
        "LQ_STORE": str(tmp_path / "store"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.endswith("whole\n"), done.stderr[-3_000:]


def test_users_without_a_username_and_with_a_uuid_for_a_key(tmp_path):
    run(
        tmp_path,
        """
        values["INSTALLED_APPS"] = [*values["INSTALLED_APPS"], "people"]
        values["AUTH_USER_MODEL"] = "people.Person"
        """,
    )


def test_a_default_site_of_the_projects_own(tmp_path):
    run(
        tmp_path,
        """
        apps = [one for one in values["INSTALLED_APPS"] if one != "django.contrib.admin"]
        values["INSTALLED_APPS"] = ["people.own_admin.OwnAdmin", *apps]
        """,
        'assert "Our own site" in html\n',
    )


def test_the_admins_log_in_another_database(tmp_path):
    run(
        tmp_path,
        """
        memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        values["DATABASES"] = {"default": dict(memory), "logs": dict(memory)}
        values["DATABASE_ROUTERS"] = ["people.router.LogsElsewhere"]
        """,
        """
        assert LogEntry.objects.using("logs").count() == 1
        """,
    )


@pytest.mark.parametrize("use_tz", [True, False])
def test_zones_on_or_off(use_tz, tmp_path):
    run(tmp_path, f'values["USE_TZ"] = {use_tz}\nvalues["TIME_ZONE"] = "America/Sao_Paulo"\n')
