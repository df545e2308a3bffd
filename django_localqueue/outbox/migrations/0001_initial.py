"""Makes the table of the outbox."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar[list[Any]] = []

    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="OutboxJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.CharField(max_length=36, unique=True, verbose_name="job")),
                ("queue", models.CharField(max_length=255, verbose_name="queue")),
                ("backend", models.CharField(max_length=255, verbose_name="task backend")),
                ("task", models.CharField(max_length=1000, verbose_name="task")),
                ("pending", models.TextField(verbose_name="job as put")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
            ],
            options={
                "verbose_name": "outbox job",
                "verbose_name_plural": "outbox jobs",
                "ordering": ["id"],
                "indexes": [models.Index(fields=["queue", "id"], name="localqueue_outbox_queue")],
            },
        ),
    ]
