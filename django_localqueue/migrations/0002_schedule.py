from __future__ import annotations

import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("django_localqueue", "0001_initial"),)

    operations = (
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=255, primary_key=True, serialize=False, verbose_name="name"
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("run_schedule", "Can run schedule now"),
                ),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "no_rows",
                "default_manager_name": "no_rows",
            },
            managers=[
                ("no_rows", django.db.models.manager.Manager()),
            ],
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "base_manager_name": "no_rows",
                "default_manager_name": "no_rows",
                "default_permissions": ("view",),
                "managed": False,
                "permissions": (
                    ("view_job_payload", "Can view payload of job"),
                    ("retry_job", "Can retry job"),
                    ("discard_job", "Can discard job"),
                    ("edit_job", "Can edit job"),
                    ("run_job_now", "Can run job now"),
                    ("move_job", "Can move job to another queue"),
                    ("export_job", "Can export jobs"),
                ),
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
    )
