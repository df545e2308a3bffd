"""Two queues in a folder of their own, users with chosen permissions, and how to fail jobs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_localqueue import queues
from tests.unit.test_console.tools import ACT, LIST, OPERATOR, VIEWER, Page, confirm


@pytest.fixture(autouse=True)
def _store(settings: Any, tmp_path: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.unit.test_console.site"
    settings.LOCALQUEUE = {
        "default": {"LOCATION": tmp_path / "store", "OPTIONS": {"durability": "normal"}},
        "emails": {},
    }
    yield
    queues.close_all()


@pytest.fixture
def login(db: None) -> Callable[..., Client]:
    """Return a client in which a staff user with these permissions is logged in."""
    numbers = itertools.count()

    def login(*codenames: str, **fields: Any) -> Client:
        options = {"is_staff": True, **fields}
        user = User.objects.create_user(f"user{next(numbers)}", password="x", **options)
        found = Permission.objects.filter(
            content_type__app_label="django_localqueue", codename__in=codenames
        )
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return login


@pytest.fixture
def operator(login: Callable[..., Client]) -> Client:
    """A user who may do everything that the console offers."""
    return login(*OPERATOR)


@pytest.fixture
def viewer(login: Callable[..., Client]) -> Client:
    """A user who may look at queues and jobs, and nothing else."""
    return login(*VIEWER)


@pytest.fixture
def fail() -> Callable[..., list[str]]:
    """Put jobs and make dead letters of them; returns their ids, oldest first."""

    def fail(
        number: int = 1,
        alias: str = "default",
        error: Any = "boom",
        data: Any = None,
        **options: Any,
    ) -> list[str]:
        queue = queues[alias]
        ids = []
        for index in range(number):
            ids.append(str(queue.put({"number": index} if data is None else data, **options)))
            job = queue.get(block=False, worker="tester")
            assert job.id == ids[-1]
            queue.fail(job, error)
        return ids

    return fail


@pytest.fixture
def page() -> Callable[..., Page]:
    """Get an address and read the page."""

    def page(client: Client, address: str, status: int = 200) -> Page:
        response = client.get(address)
        assert response.status_code == status, (address, response.status_code)
        return Page(response.content.decode())

    return page


@pytest.fixture
def act(page: Callable[..., Page]) -> Callable[..., Any]:
    """Send the list's form, then the confirmation's; returns the page after them."""

    def act(
        client: Client, name: str, selected: list[str] | None = None, address: str = LIST
    ) -> Any:
        listed = page(client, address)
        first = {key: listed.field(key) for key in ("filter", "as_of", "next", "state")} | {
            "act": name
        }
        if selected is not None:
            first["selected"] = selected
        return confirm(client, client.post(ACT, first))

    return act
