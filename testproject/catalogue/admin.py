from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from testproject.catalogue.models import File


@admin.register(File)
class FileAdmin(admin.ModelAdmin):
    """The catalogue to look at: only jobs write it."""

    list_display = ("path", "mime_type", "size", "title", "word_count", "indexed_at")
    list_filter = ("mime_type",)
    search_fields = ("path", "title")
    list_select_related = ("archive",)
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
