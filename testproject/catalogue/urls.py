from __future__ import annotations

from django.urls import path

from testproject.catalogue import views

app_name = "catalogue"
urlpatterns = [
    path("", views.search_page, name="search"),
    path("file/<int:pk>/", views.file_page, name="file"),
]
