"""One small adaptor a task system, so that each runs the same tasks of the same project.

Each is set up as its own documentation does first, its worker at its defaults.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

#: Django's task framework, or on Django 5.2 the backport.
DJANGO_TASKS = """
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task
"""


class System:
    """A task system under test.

    Attributes: ``package``, whose version is told; ``apps`` to be installed; ``imports``, what
    the module of the tasks imports; ``decorator`` of a task, ``db_decorator`` of one that uses
    the database; ``send``, the expression that enqueues ``task`` with ``number``; ``worker``,
    the arguments of the interpreter that start one worker; ``files``, more of the project;
    ``conn_max_age`` of the project's database.

    Args:
        folder: the project's.
        redis: the URL of a server, for a system that ``needs_redis``.
    """

    package = ""
    needs_redis = False
    apps: tuple[str, ...] = ()
    imports = DJANGO_TASKS
    decorator = "task"
    db_decorator = ""
    send = "task.enqueue(number)"
    worker: tuple[str, ...] = ()
    conn_max_age: int | None = 0
    #: It runs in this interpreter's environment instead of the peers'.
    is_ours = False

    def __init__(self, folder: Path, redis: str) -> None:
        self.folder = folder
        self.redis = redis

    def settings(self) -> str:
        """Return what is added to the settings of the project."""
        return ""

    def files(self) -> dict[str, str]:
        """Return more files of the project, by path."""
        return {}


class Ours(System):
    package = "django-localqueue"
    apps = ("django_localqueue", *(() if find_spec("django.tasks") else ("django_tasks",)))
    worker = ("-m", "django", "runqueueworker", "-v", "0")
    is_ours = True

    def settings(self) -> str:
        return (
            'TASKS = {"default": {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}\n'
            'LOCALQUEUE_CONSOLE = {"AUTO_REGISTER": False}\n'
        )


class TasksDb(System):
    package = "django-tasks-db"
    apps = ("django_tasks", "django_tasks_db")
    worker = ("-m", "django", "db_worker")

    def settings(self) -> str:
        return 'TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}\n'


class TasksDbKept(TasksDb):
    conn_max_age = None


class HueySqlite(System):
    package = "huey"
    apps = ("huey.contrib.djhuey",)
    imports = "from huey.contrib.djhuey import db_task, task"
    decorator, db_decorator = "task()", "db_task()"
    send = "task(number)"
    worker = ("-m", "django", "run_huey")

    def settings(self) -> str:
        file = str(self.folder / "huey.sqlite3")
        huey = {"huey_class": "huey.SqliteHuey", "filename": file, "immediate": False}
        return f"HUEY = {huey!r}\n"


class HueyRedis(HueySqlite):
    needs_redis = True

    def settings(self) -> str:
        huey = {"huey_class": "huey.RedisHuey", "url": self.redis, "immediate": False}
        return f"HUEY = {huey!r}\n"


class Q2(System):
    package = "django-q2"
    apps = ("django_q",)
    imports = "from django_q.tasks import async_task\n\n\ndef task(function):\n    return function"
    send = 'async_task(f"bench.tasks.{name}", number)'
    worker = ("-m", "django", "qcluster")

    def settings(self) -> str:
        return 'Q_CLUSTER = {"name": "bench", "orm": "default"}\n'


class Celery(System):
    package = "celery"
    needs_redis = True
    imports = "from bench.celery import app"
    decorator = "app.task"
    send = "task.delay(number)"
    worker = ("-m", "celery", "-A", "bench.celery", "worker")

    def files(self) -> dict[str, str]:
        return {
            "bench/celery.py": "from celery import Celery\n\n"
            f'app = Celery("bench", broker={self.redis!r}, include=["bench.tasks"])\n'
        }


class Dramatiq(System):
    package = "dramatiq"
    needs_redis = True
    apps = ("django_dramatiq",)
    imports = "from dramatiq import actor"
    decorator = "actor"
    send = "task.send(number)"
    worker = ("-m", "django", "rundramatiq")

    def settings(self) -> str:
        names = ("AgeLimit", "TimeLimit", "Callbacks", "Retries")
        middleware = [f"dramatiq.middleware.{name}" for name in names]
        middleware.append("django_dramatiq.middleware.DbConnectionsMiddleware")
        broker = {
            "BROKER": "dramatiq.brokers.redis.RedisBroker",
            "OPTIONS": {"url": self.redis},
            "MIDDLEWARE": middleware,
        }
        return f"DRAMATIQ_BROKER = {broker!r}\n"


class Rq(System):
    package = "django-rq"
    needs_redis = True
    apps = ("django_rq",)
    imports = "from django_rq import job"
    decorator = "job"
    send = "task.delay(number)"
    worker = ("-m", "django", "rqworker", "default")

    def settings(self) -> str:
        return f"RQ_QUEUES = { ({'default': {'URL': self.redis}})!r}\n"


SYSTEMS: dict[str, type[System]] = {
    "ours": Ours,
    "django-tasks-db": TasksDb,
    "django-tasks-db, CONN_MAX_AGE=None": TasksDbKept,
    "huey, SQLite": HueySqlite,
    "django-q2, ORM": Q2,
    "huey, Redis": HueyRedis,
    "celery, Redis": Celery,
    "dramatiq, Redis": Dramatiq,
    "django-rq, Redis": Rq,
}
