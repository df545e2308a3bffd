"""Puts the console on Django's admin site; see ``django_localqueue.console``."""

from __future__ import annotations

from django.contrib import admin

from django_localqueue.conf import console
from django_localqueue.console import register_console

if console().auto_register:
    register_console(admin.site)
