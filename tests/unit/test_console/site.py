"""The sites of these tests: Django's own admin, and a second one with the console."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_localqueue.console import register_console

ops = admin.AdminSite(name="ops")
ops.site_header = "The operators' site"
register_console(ops)

urlpatterns = [
    path("admin/", admin.site.urls),
    path("ops/", ops.urls),
]
