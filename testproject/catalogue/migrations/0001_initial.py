from __future__ import annotations

from typing import Any, ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[Any]] = []

    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="File",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(max_length=4096, unique=True)),
                ("size", models.PositiveBigIntegerField(help_text="bytes")),
                ("sha256", models.CharField(max_length=64, verbose_name="SHA-256")),
                ("mime_type", models.CharField(db_index=True, max_length=100)),
                ("title", models.CharField(blank=True, max_length=200)),
                ("word_count", models.PositiveIntegerField(default=0)),
                ("indexed_at", models.DateTimeField()),
                (
                    "archive",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="members",
                        to="catalogue.file",
                    ),
                ),
            ],
            options={"ordering": ("path",)},
        ),
    ]
