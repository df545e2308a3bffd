from __future__ import annotations

import warnings

from django.apps import AppConfig


class CatalogueConfig(AppConfig):
    name = "testproject.catalogue"
    label = "catalogue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The parser warns about odd escapes in the sources it reads; they are not ours to mend.
        warnings.filterwarnings("ignore", category=SyntaxWarning)
