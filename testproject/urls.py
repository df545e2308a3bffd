"""The catalogue at the root, the admin with the console at ``/admin/``."""

from __future__ import annotations

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("favicon.ico", RedirectView.as_view(url=static("catalogue/icon.svg"))),
    path("", include("testproject.catalogue.urls")),
]
