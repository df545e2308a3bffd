"""The pages as such: what they allow in, the sites they are on, the settings they bear."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import zoneinfo
from types import ModuleType

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client
from django.urls import get_script_prefix, path, set_script_prefix
from django.utils import translation

from django_localqueue import ErrorRecord, models, queues
from django_localqueue.console import register_console
from django_localqueue.console.permissions import ACTIONS
from django_localqueue.exceptions import StoreUnavailable
from django_localqueue.types import to_datetime
from tests.unit.test_console.tools import ACT, LIST, OPERATOR, OVERVIEW, Page, job_url, key, states

ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 7|add:7 }}{% now 'Y' %}",
]


def every_page(client, alias, id):
    """Return the HTML of every page that can show a job, the confirmations and messages too."""
    listed = client.get(LIST)
    shown = Page(listed.content.decode())
    fields = {name: shown.field(name) for name in ("filter", "as_of", "next")}
    chosen = fields | {"selected": key(alias, id)}
    return [
        client.get("/admin/"),
        client.get(OVERVIEW),
        client.get(f"{OVERVIEW}purge/?state=failed&age=0&unit=days"),
        listed,
        client.get(LIST, {"text": id, "task": id, "error": id}),
        client.get(LIST, {"queue": id, "reason": id}),
        client.get(job_url(alias, id)),
        client.get(f"{LIST}find/", {"id": f"{id}?"}),
        client.post(ACT, chosen | {"act": "retry-selected"}),
        client.post(ACT, fields | {"act": "purge-all", "confirmed": "1", "word": id}),
        client.post(ACT, fields | {"act": "retry-all", "filter": "reason=x"}, follow=True),
        client.post(f"{OVERVIEW}pause/", {"queue": alias}, follow=True),
        client.post(job_url(alias, id, "job_retry"), follow=True),
        client.get("/admin/"),
        client.get(job_url(alias, id)),
        client.get(job_url(alias, f"{id} gone")),
    ]


def assert_clean(responses):
    for response in responses:
        html = response.content.decode()
        shown = Page(html)
        address = response.request["PATH_INFO"]
        assert not shown.forbidden, (address, shown.forbidden)
        assert "<img src=x" not in html, address
        assert "<script>alert" not in html, address


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_stored_is_taken_for_markup(attack, operator, settings):
    settings.LOCALQUEUE = {**settings.LOCALQUEUE, attack: {"NAME": "attacked"}}
    queue = queues[attack]
    id = queue.put(
        {attack: attack}, job_id=attack, task=attack, headers={attack: attack}, group_id=attack
    )
    error = ErrorRecord(attack, attack, attack, attack)
    queue.fail(queue.get(block=False, worker=attack), error)
    assert_clean(every_page(operator, attack, str(id)))


def test_an_attack_in_an_error_of_the_store_is_shown_as_text(operator, monkeypatch):
    def refuse(*_args, **_options):
        raise StoreUnavailable(ATTACKS[0])

    for name in ("stats", "list", "lookup"):
        monkeypatch.setattr(queues["default"], name, refuse)
    assert_clean(
        [operator.get(OVERVIEW), operator.get(LIST), operator.get(job_url("default", "x"))]
    )


def test_no_page_needs_an_inline_script_or_style(fail, operator):
    (id,) = fail(1)
    responses = every_page(operator, "default", id)
    assert_clean(responses)
    assert all(response.status_code in (200, 400, 404) for response in responses)


def test_a_nonce_of_the_project_is_put_on_style_and_script(operator, settings):
    (engine,) = settings.TEMPLATES
    processors = [*engine["OPTIONS"]["context_processors"], f"{__name__}.nonce"]
    settings.TEMPLATES = [{**engine, "OPTIONS": {"context_processors": processors}}]
    shown = Page(operator.get(OVERVIEW).content.decode())
    own = [attrs for _tag, attrs in shown.elements if "console." in str(attrs)]
    assert len(own) == 2
    assert all(attrs["nonce"] == "abc" for attrs in own)


def nonce(request):
    """A context processor as a project with a nonce-only policy has one."""
    return {"csp_nonce": "abc"}


def test_every_field_has_a_label_and_every_table_its_caption_and_scopes(fail, operator):
    (id,) = fail(1)
    for response in every_page(operator, "default", id)[1:9]:
        shown = Page(response.content.decode())
        labels = {attrs.get("for") for tag, attrs in shown.elements if tag == "label"}
        for tag, attrs in shown.elements:
            if tag in ("input", "select") and attrs.get("type") not in ("hidden", "submit"):
                if attrs.get("id") == "nav-filter":
                    continue  # the admin's own
                assert attrs.get("id") in labels or attrs.get("aria-label"), attrs
            if tag == "th" and "lq-table" in str(shown.elements):
                assert attrs.get("scope"), (response.request["PATH_INFO"], attrs)
        tables = [attrs for tag, attrs in shown.elements if tag == "table" and "lq-" in str(attrs)]
        captions = [tag for tag, _attrs in shown.elements if tag == "caption"]
        assert len(captions) >= len(tables)


def test_ids_in_a_page_are_unique(fail, operator):
    (id,) = fail(3)[:1]
    for response in every_page(operator, "default", id):
        found = [
            attrs["id"] for _tag, attrs in Page(response.content.decode()).elements if "id" in attrs
        ]
        assert len(found) == len(set(found))


def test_the_overview_shows_each_queue_with_its_counts(fail, operator):
    queue = queues["default"]
    fail(2)
    queue.put("done")
    queue.ack(queue.get(block=False))
    queue.put("runs")
    job = queue.get(block=False)
    queue.put("lead", group_id="g")
    queue.put("blocked", group_id="g")
    queue.put("delayed", delay=60)
    context = operator.get(OVERVIEW).context
    stats = {item["row"].alias: item["row"].stats for item in context["rows"]}
    assert list(stats) == ["default", "emails"]
    counts = stats["default"]
    assert (counts.ready, counts.delayed, counts.blocked) == (3, 1, 1)
    assert (counts.processing, counts.acked, counts.failed) == (1, 1, 2)
    queue.ack(job)


def test_the_overview_says_how_long_the_oldest_ready_job_has_waited(operator, page, monkeypatch):
    queue = queues["default"]
    queue.put("x")
    waited = queue.stats().oldest_ready_at
    monkeypatch.setattr(queue, "now", lambda: waited + 7_200_000_000)
    assert "2\xa0hours" in page(operator, OVERVIEW).text
    monkeypatch.setattr(queue, "now", lambda: waited + 5_000_000)
    assert "5 seconds" in page(operator, OVERVIEW).text


def test_the_overview_leads_to_the_dead_letters_of_a_queue(fail, operator):
    fail(1)
    (id,) = fail(1, alias="emails")
    (row,) = [r for r in operator.get(OVERVIEW).context["rows"] if r["row"].alias == "emails"]
    (letter,) = operator.get(row["dead_letters_url"]).context["rows"]
    assert letter["id"] == id


def test_a_queue_that_cannot_be_opened_shows_its_error_in_its_row(operator, settings, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    settings.LOCALQUEUE = {
        **settings.LOCALQUEUE,
        "broken": {"LOCATION": tmp_path / "file"},
        "wrong": {"BACKEND": "no.such.Backend", "LOCATION": "x"},
        "odd": {"OPTIONS": {"lease_seconds": -1}},
    }
    response = operator.get(OVERVIEW)
    assert response.status_code == 200
    errors = {item["row"].alias: item["row"].error for item in response.context["rows"]}
    assert errors["default"] == ""
    assert all(errors[alias] for alias in ("broken", "wrong", "odd"))
    assert "no.such.Backend" in errors["wrong"]
    assert operator.get(LIST).status_code == 200
    assert operator.get(f"{LIST}find/?id=x").status_code == 200
    for alias in ("broken", "wrong", "odd"):
        html = operator.get(f"{OVERVIEW}{alias}/change/").content.decode()
        assert f"The queue “{alias}” could not be read: " in html


def test_the_text_of_an_unexpected_error_stays_in_the_log(operator, monkeypatch, caplog):
    def explode():
        raise RuntimeError("password=secret")

    monkeypatch.setattr(queues["default"], "stats", explode)
    html = operator.get(OVERVIEW).content.decode()
    assert "RuntimeError; the log has the details." in html
    assert "secret" not in html
    assert "secret" in caplog.text


def test_the_console_works_on_a_second_site(fail, operator):
    (id,) = fail(1)
    html = operator.get("/ops/django_localqueue/job/").content.decode()
    assert "The operators&#x27; site" in html
    shown = Page(html)
    assert job_url("default", id, site="ops") in shown.links
    assert job_url("default", id, site="ops").startswith("/ops/")
    assert "/ops/" in shown.links
    assert not any(link.startswith("/admin/") for link in shown.links)
    response = operator.post(job_url("default", id, "job_retry", site="ops"))
    assert response["Location"] == "/ops/django_localqueue/job/"
    assert states() == (1, 0, 0)


def test_the_console_can_be_put_on_any_site():
    site = AdminSite(name="mine")
    register_console(site)
    assert {models.Queue, models.Job, models.Worker, models.Schedule} == set(site._registry)


def run(code, **environment):
    """Run Python in a process of its own with the settings of the suite."""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_setting_keeps_the_console_off_the_default_site():
    code = (
        "import django; from django.conf import settings;"
        "settings.LOCALQUEUE_CONSOLE = {'AUTO_REGISTER': %s}; django.setup();"
        "from django.contrib import admin; from django_localqueue import models;"
        "print(models.Job in admin.site._registry)"
    )
    assert run(code % "False").stdout.strip() == "False"
    assert run(code % "True").stdout.strip() == "True"


def test_without_the_admin_the_package_loads_and_the_console_is_left_alone():
    code = (
        "import sys, django; from django.conf import settings;"
        "settings.INSTALLED_APPS = ['django.contrib.contenttypes', 'django_localqueue'];"
        "django.setup(); from django_localqueue import queues; queues['default'].put(1);"
        "print('django.contrib.admin' in sys.modules, 'django_localqueue.console' in sys.modules)"
    )
    result = run(code)
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_the_default_site_has_the_console_by_itself():
    assert {models.Queue, models.Job} <= set(admin.site._registry)


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_are_those_of_the_projects_zone_with_utc_beside_them(
    use_tz, fail, operator, settings
):
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Kolkata"
    (id,) = fail(1)
    record = queues["default"].lookup(id)
    (row,) = operator.get(LIST).context["rows"]
    utc = to_datetime(record.finished_at)
    here = utc.astimezone(zoneinfo.ZoneInfo("Asia/Kolkata"))
    assert f"{here:%H:%M:%S}" in row["time"]
    assert f"{utc:%Y-%m-%d %H:%M:%S.%f} UTC" in row["time"]
    assert operator.get(job_url("default", id)).status_code == 200


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_time_in_the_filter_is_meant_in_the_projects_zone(use_tz, fail, operator, settings):
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Kolkata"
    fail(1)
    here = datetime.datetime.now(zoneinfo.ZoneInfo("Asia/Kolkata"))
    minute = datetime.timedelta(minutes=10)
    for moment, expected in ((here - minute, 1), (here + minute, 0)):
        response = operator.get(LIST, {"since": moment.strftime("%Y-%m-%dT%H:%M:%S")})
        assert len(response.context["rows"]) == expected


def test_pages_have_their_texts_where_translations_are_off_or_another_language(fail, operator):
    (id,) = fail(1)
    with translation.override("ar"):
        for address in (OVERVIEW, LIST, job_url("default", id)):
            assert operator.get(address, headers={"accept-language": "ar"}).status_code == 200


def test_links_keep_the_prefix_under_which_the_site_is_mounted(fail, operator):
    (id,) = fail(1)
    before = get_script_prefix()
    set_script_prefix("/prefix/")
    try:
        response = operator.get(LIST, SCRIPT_NAME="/prefix")
        (row,) = response.context["rows"]
        address = job_url("default", id)
    finally:
        set_script_prefix(before)
    assert address.startswith("/prefix/admin/")
    assert row["url"] == address
    assert response.context["here"] == f"/prefix{LIST}"


def test_static_files_are_found_and_survive_a_manifest(operator, settings, tmp_path):
    for name in ("console.css", "console.js"):
        assert finders.find(f"django_localqueue/{name}")
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
    }
    call_command("collectstatic", interactive=False, verbosity=0)
    html = operator.get(OVERVIEW).content.decode()
    assert "django_localqueue/console.css" not in html
    assert "django_localqueue/console." in html


class Refusing:
    """A router that lets the project's tables be nowhere."""

    def allow_migrate(self, db, app_label, **_hints):
        return app_label != "django_localqueue"


def test_permissions_are_made_though_a_router_sends_the_app_nowhere(db, settings):
    Permission.objects.filter(content_type__app_label="django_localqueue").delete()
    settings.DATABASE_ROUTERS = [f"{__name__}.Refusing"]
    create_permissions(apps.get_app_config("django_localqueue"), verbosity=0)
    assert Permission.objects.filter(content_type__app_label="django_localqueue").count() == len(
        ACTIONS
    )


def test_the_models_say_where_the_jobs_are(db):
    with pytest.raises(NotImplementedError, match="Job has no table: the jobs are in the queues"):
        models.Job.objects.all()
    with pytest.raises(NotImplementedError, match="Queue has no table"):
        models.Queue(alias="x").save()


def test_the_models_stand_in_nobodys_way_who_walks_over_all_of_them(db, capsys):
    call_command("dumpdata", "django_localqueue")
    assert capsys.readouterr().out.strip() == "[]"
    with pytest.raises(models.Job.DoesNotExist):
        models.Job._base_manager.get(pk="x")


def test_the_application_page_of_the_admin_works(operator):
    assert operator.get("/admin/django_localqueue/").status_code == 200


def test_a_site_that_lets_in_who_is_no_staff_lets_them_use_the_console(db, fail, settings):
    class Open(AdminSite):
        def has_permission(self, request):
            return request.user.is_active

    site = Open(name="open")
    register_console(site)
    user = User.objects.create_user("guest")
    user.user_permissions.set(Permission.objects.filter(codename__in=OPERATOR))
    client = Client()
    client.force_login(user)
    (id,) = fail(1)
    urls = ModuleType("open_urls")
    urls.urlpatterns = [path("admin/", site.urls)]
    settings.ROOT_URLCONF = urls
    assert id in client.get(LIST).content.decode()


def test_the_numbers_of_the_overview_are_those_of_the_lists(operator):
    queue = queues["default"]
    queue.put_many(["ready", "ready"])
    queue.put("delayed", delay=3_600)
    for data in ("lead", "behind"):
        queue.put(data, group_id="g")
    (item, _emails) = operator.get(OVERVIEW).context["rows"]
    numbers = {"ready": item["row"].ready, "delayed": 1, "blocked": 1}
    assert numbers["ready"] == 3
    for state, number in numbers.items():
        assert len(operator.get(item["lists"][state]).context["rows"]) == number, state


def test_the_page_of_a_job_is_read_again_by_itself(operator):
    id = queues["default"].put("x")
    html = operator.get(job_url("default", id)).content.decode()
    assert "data-lq-refresh" in html
    assert 'data-lq-live="job"' in html


def test_after_a_retry_a_link_leads_to_what_runs_for_who_may_see_it(fail, operator, login):
    one, other = fail(2)
    html = operator.post(job_url("default", one, "job_retry"), follow=True).content.decode()
    assert f'Retried 1 failed job. <a href="{OVERVIEW}">See what runs</a>' in html
    client = login("view_job", "retry_job")
    html = client.post(job_url("default", other, "job_retry"), follow=True).content.decode()
    assert "Retried 1 failed job." in html
    assert "See what runs" not in html
