from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    """The full-text table; its rowid is the file's id, and it loses a row with the file."""

    dependencies: ClassVar[list[Any]] = [("catalogue", "0001_initial")]

    operations: ClassVar[list[Any]] = [
        migrations.RunSQL(
            """
            CREATE VIRTUAL TABLE catalogue_text USING fts5(
                title, names, path, body, tokenize = 'unicode61 remove_diacritics 2'
            )
            """,
            "DROP TABLE catalogue_text",
        ),
        migrations.RunSQL(
            """
            CREATE TRIGGER catalogue_text_delete AFTER DELETE ON catalogue_file BEGIN
                DELETE FROM catalogue_text WHERE rowid = old.id;
            END
            """,
            "DROP TRIGGER catalogue_text_delete",
        ),
    ]
