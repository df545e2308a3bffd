"""The sites of the test-suite: Django's own admin, and a second one."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

ops = admin.AdminSite(name="ops")

urlpatterns = [
    path("admin/", admin.site.urls),
    path("ops/", ops.urls),
]
