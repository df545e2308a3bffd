"""Makes the permissions and content types of the console; there are no tables."""

from __future__ import annotations

from typing import Any, ClassVar

import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar[list[Any]] = []

    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "alias",
                    models.CharField(
                        max_length=255, primary_key=True, serialize=False, verbose_name="alias"
                    ),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": (
                    ("pause_queue", "Can pause and resume queue"),
                    ("purge_queue", "Can purge jobs of queue"),
                ),
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "no_rows",
                "default_manager_name": "no_rows",
            },
            managers=[("no_rows", django.db.models.manager.Manager())],
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "key",
                    models.CharField(
                        max_length=600, primary_key=True, serialize=False, verbose_name="key"
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": (
                    ("view_job_payload", "Can view payload of job"),
                    ("retry_job", "Can retry job"),
                    ("discard_job", "Can discard job"),
                    ("edit_job", "Can edit job"),
                    ("run_job_now", "Can run job now"),
                    ("export_job", "Can export jobs"),
                ),
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "no_rows",
                "default_manager_name": "no_rows",
            },
            managers=[("no_rows", django.db.models.manager.Manager())],
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=255, primary_key=True, serialize=False, verbose_name="name"
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "permissions": (("stop_worker", "Can stop worker"),),
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "no_rows",
                "default_manager_name": "no_rows",
            },
            managers=[("no_rows", django.db.models.manager.Manager())],
        ),
    ]
