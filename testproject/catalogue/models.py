from __future__ import annotations

from django.db import models
from django.urls import reverse


class File(models.Model):
    """One file that was read, on disk or inside an archive.

    A member's path is its archive's path, ``!/`` and its name there. Title, names and
    words are in the full-text table ``catalogue_text`` under the same id.
    """

    path = models.CharField(max_length=4096, unique=True)
    archive = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="members"
    )
    size = models.PositiveBigIntegerField(help_text="bytes")
    sha256 = models.CharField("SHA-256", max_length=64)
    mime_type = models.CharField(max_length=100, db_index=True)
    title = models.CharField(max_length=200, blank=True)
    word_count = models.PositiveIntegerField(default=0)
    indexed_at = models.DateTimeField()

    class Meta:
        ordering = ("path",)

    def __str__(self) -> str:
        return self.path

    def get_absolute_url(self) -> str:
        return reverse("catalogue:file", args=[self.pk])

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]
