"""Settings of a site with another theme, for a server of its own; paths come by environment."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as INSTALLED
from tests.settings import MIDDLEWARE as MIDDLEWARE

INSTALLED_APPS = [os.environ["LQ_THEME"], *INSTALLED]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["LQ_DATABASE"]}}
LOCALQUEUE = {"default": {"LOCATION": os.environ["LQ_STORE"]}, "emails": {}}
DEBUG = True  # serves static files
