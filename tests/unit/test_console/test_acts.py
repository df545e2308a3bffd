"""Retry, purge, discard, pause: what they change, what they leave, what they tell."""

from __future__ import annotations

import pytest

from django_localqueue import Settle, queues
from django_localqueue.exceptions import StoreUnavailable
from django_localqueue.types import JobFilter
from tests.unit.test_console.tools import (
    ACT,
    LIST,
    OVERVIEW,
    Page,
    confirm,
    job_url,
    key,
    messages,
    states,
)


def form_of(shown, act):
    """Return what a form of the job's page would send."""
    names = ("selected", "next", "state", "as_of")
    return {name: shown.field(name) for name in names} | {"act": act}


def listed(client, page, address=LIST, **more):
    """Return the fields that the list's form would send."""
    shown = page(client, address)
    return {name: shown.field(name) for name in ("filter", "as_of", "next", "state")} | more


def test_one_post_retries_one_job_without_asking(fail, operator, page):
    (id,) = fail(1)
    fields = listed(operator, page)
    response = operator.post(job_url("default", id, "job_retry"), fields, follow=True)
    record = queues["default"].lookup(id)
    assert (record.state, record.attempts) == ("ready", 0)
    assert messages(response).startswith("Retried 1 failed job.")
    assert response.redirect_chain == [(LIST, 302)]


def test_a_second_click_on_retry_changes_nothing_and_says_so(fail, operator):
    (id,) = fail(1)
    address = job_url("default", id, "job_retry")
    operator.post(address)
    response = operator.post(address, follow=True)
    assert "1 job had changed meanwhile and was left alone." in messages(response)
    assert states() == (1, 0, 0)


def test_retrying_from_a_stale_page_leaves_alone_what_has_failed_again_since(fail, operator, page):
    (id,) = fail(1)
    fields = listed(operator, page)
    queue = queues["default"]
    queue.retry_failed(id)
    queue.fail(queue.get(block=False), "again")
    response = operator.post(job_url("default", id, "job_retry"), fields, follow=True)
    assert "1 job had changed meanwhile" in messages(response)
    assert queue.lookup(id).state == "failed"


def test_retrying_a_job_that_is_gone_says_that_it_was_not_found(operator):
    response = operator.post(job_url("default", "gone", "job_retry"), follow=True)
    assert "1 job was not found." in messages(response)


def test_retrying_a_hundred_letters_again_and_again_never_makes_more_of_them(fail, operator, act):
    """Where a retry copied its jobs, each round would double the list."""
    queue = queues["default"]
    expected = sorted(fail(100))
    for _round in range(3):
        act(operator, "retry-all")
        assert states() == (100, 0, 0)
        for job in queue.get_many(100):
            queue.fail(job, "boom")
        assert states() == (0, 100, 0)
        assert sorted(record.id for record in queue.list_failed(200)) == expected


def test_the_selected_jobs_are_retried_after_a_confirmation_that_names_them(fail, operator, page):
    ids = fail(3)
    chosen = [key("default", id) for id in ids[:2]]
    response = operator.post(ACT, listed(operator, page, act="retry-selected", selected=chosen))
    shown = Page(response.content.decode())
    assert "2 jobs" in shown.text
    assert all(f"default: {id}" in shown.text for id in ids[:2])
    assert f"default: {ids[2]}" not in shown.text
    assert states() == (0, 3, 0)
    assert "Retried 2 failed jobs." in messages(confirm(operator, response))
    assert states() == (2, 1, 0)
    assert queues["default"].lookup(ids[2]).state == "failed"


def test_jobs_purged_in_another_tab_are_reported_and_stop_nothing(fail, operator, act):
    ids = fail(50)
    chosen = [key("default", id) for id in ids]
    queues["default"].apply("purge", JobFilter(ids=tuple(ids[:3])))
    said = messages(act(operator, "retry-selected", chosen))
    assert "Retried 47 failed jobs." in said
    assert "3 jobs were not found." in said
    assert states() == (47, 0, 0)


def test_jobs_retried_in_another_tab_are_reported_and_not_purged(fail, operator, act, page):
    ids = fail(4)
    fields = listed(operator, page, act="purge-selected", selected=[key("default", i) for i in ids])
    response = operator.post(ACT, fields)
    queues["default"].retry_failed(ids[0])
    said = messages(confirm(operator, response))
    assert "Purged 3 jobs." in said
    assert "1 job had changed meanwhile and was left alone." in said
    assert states() == (1, 0, 0)


def test_jobs_of_two_queues_are_retried_by_one_act(fail, operator, act):
    (one,), (two,) = fail(1), fail(1, alias="emails")
    response = act(operator, "retry-selected", [key("default", one), key("emails", two)])
    assert messages(response).startswith("Retried 2 failed jobs.")
    assert states("default") == states("emails") == (1, 0, 0)


def test_selecting_nothing_does_nothing_and_says_so(fail, operator, page):
    fail(2)
    response = operator.post(ACT, listed(operator, page, act="purge-selected"), follow=True)
    assert "No job was selected" in messages(response)
    assert states() == (0, 2, 0)


def test_all_that_match_leaves_alone_what_failed_after_the_page_was_made(fail, operator, page):
    fail(5)
    fields = listed(operator, page, act="purge-all")
    later = fail(2)
    response = operator.post(ACT, fields)
    assert "5 jobs" in Page(response.content.decode()).text
    fail(1)
    assert "Purged 5 jobs." in messages(confirm(operator, response))
    assert states() == (0, 3, 0)
    assert set(later) <= {record.id for record in queues["default"].list_failed()}


def test_all_that_match_means_the_filter_of_the_page(fail, operator, act):
    kept = fail(2, error="other")
    fail(3, error="timeout")
    fail(3, alias="emails", error="timeout")
    response = act(operator, "purge-all", address=f"{LIST}?queue=default&text=timeout")
    assert "Purged 3 jobs." in messages(response)
    assert [record.id for record in queues["default"].list_failed()] == kept[::-1]
    assert states("emails") == (0, 3, 0)


def test_an_act_leads_back_to_the_filtered_list(fail, operator, act):
    fail(3)
    address = f"{LIST}?queue=default&text=boom&per=25"
    assert act(operator, "retry-all", address=address).redirect_chain == [(address, 302)]


def test_purging_all_touches_dead_letters_and_no_other_state(fail, operator, act):
    fail(3)
    queue = queues["default"]
    queue.put("acked")
    queue.ack(queue.get(block=False))
    queue.put("running")
    job = queue.get(block=False)
    queue.put("ready")
    queue.put("delayed", delay=60)
    act(operator, "purge-all")
    stats = queue.stats()
    assert (stats.failed, stats.acked, stats.processing, stats.ready) == (0, 1, 1, 2)
    queue.ack(job)


def test_twenty_thousand_letters_are_purged_by_one_act(operator, act):
    queue = queues["default"]
    queue.put_many(range(20_000))
    while jobs := queue.get_many(5_000):
        queue.exchange([Settle(job, "fail", error="boom") for job in jobs], 0)
    response = act(operator, "purge-all")
    assert "Purged 20000 jobs." in messages(response)
    assert states() == (0, 0, 0)


def test_the_confirmation_names_count_filter_time_and_the_first_ids(fail, operator, page):
    ids = fail(15)
    address = f"{LIST}?text=boom&queue=default"
    response = operator.post(ACT, listed(operator, page, address, act="retry-all"))
    shown = Page(response.content.decode())
    assert "15 jobs" in shown.text
    assert "Error, task or id contains: “boom”" in shown.text
    assert "Queue: default" in shown.text
    assert "As of" in shown.text
    assert [id for id in ids if f"default: {id}" in shown.text] == ids[5:]


def test_a_count_over_its_cap_is_said_to_be_more(fail, operator, page, monkeypatch):
    fail(6)
    monkeypatch.setattr("django_localqueue.console.acts.COUNT_CAP", 5)
    response = operator.post(ACT, listed(operator, page, act="retry-all"))
    assert "5 jobs or more" in response.content.decode()


def test_an_act_over_its_limit_says_that_more_are_left(fail, operator, act, monkeypatch):
    fail(3)
    fail(3, alias="emails")
    monkeypatch.setattr("django_localqueue.console.views.act.ACT_LIMIT", 2)
    response = act(operator, "retry-all")
    assert "Retried 2 failed jobs." in messages(response)
    assert "More jobs match than one act takes" in messages(response)
    assert states() == (2, 1, 0)
    assert states("emails") == (0, 3, 0)


@pytest.mark.parametrize("word", ["", "Purge", "yes"])
def test_purging_all_needs_the_word_to_be_typed(word, fail, operator, page):
    fail(3)
    fields = listed(operator, page, act="purge-all", confirmed="1", word=word)
    response = operator.post(ACT, fields)
    assert response.status_code == 200
    assert "The word was not “purge”; nothing was done." in response.content.decode()
    assert states() == (0, 3, 0)


def test_retrying_all_and_purging_the_selected_need_no_word(fail, operator, page):
    (id,) = fail(1)
    for fields in ({"act": "retry-all"}, {"act": "purge-selected", "selected": key("default", id)}):
        response = operator.post(ACT, listed(operator, page, **fields))
        assert "word" not in Page(response.content.decode()).fields


@pytest.mark.parametrize(
    "change",
    [
        {"act": "purge-everything"},
        {"act": ""},
        {"state": "ready"},
        {"state": "processing"},
        {"as_of": "now"},
        {"as_of": ""},
        {"as_of": "-5"},
        {"as_of": "9" * 30},
    ],
)
def test_a_forged_act_is_a_bad_request_and_changes_nothing(change, fail, operator, page):
    fail(1)
    queues["default"].put("waiting")
    fields = listed(operator, page, act="purge-all", confirmed="1", word="purge") | change
    assert operator.post(ACT, fields).status_code == 400
    assert states() == (1, 1, 0)


def test_an_act_on_all_without_the_time_of_its_page_is_a_bad_request(fail, operator, page):
    fail(1)
    fields = listed(operator, page, act="purge-all", confirmed="1", word="purge")
    del fields["as_of"]
    assert operator.post(ACT, fields).status_code == 400
    assert states() == (0, 1, 0)


@pytest.mark.parametrize("filter", ["reason=magic", "since=yesterday", "text=%00"])
def test_an_act_on_a_filter_that_is_not_understood_does_nothing(filter, fail, operator, page):
    fail(1)
    fields = listed(operator, page, act="purge-all", confirmed="1", word="purge", filter=filter)
    fields["filter"] = filter
    response = operator.post(ACT, fields, follow=True)
    assert "The filter was not understood; nothing was done." in messages(response)
    assert states() == (0, 1, 0)


@pytest.mark.parametrize(
    "next", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_an_act_never_leads_to_another_site(next, fail, operator, page):
    (id,) = fail(1)
    fields = listed(operator, page) | {"next": next}
    assert operator.post(job_url("default", id, "job_retry"), fields)["Location"] == LIST
    response = operator.post(ACT, fields | {"act": "retry-all"})
    assert Page(response.content.decode()).field("next") == LIST


def test_a_waiting_job_is_discarded_after_a_confirmation(operator, page):
    queue = queues["default"]
    ids = [queue.put("now"), queue.put("later", delay=3_600)]
    queue.put("leads", group_id="g")
    ids.append(queue.put("blocked", group_id="g"))
    for id in ids:
        shown = page(operator, job_url("default", id))
        response = operator.post(ACT, form_of(shown, "discard-selected"))
        assert "Discard these jobs?" in response.content.decode()
        assert queue.lookup(id).state != "failed"
        assert "Discarded 1 job." in messages(confirm(operator, response))
        record = queue.lookup(id)
        assert (record.state, record.reason) == ("failed", "discarded")


def test_a_job_that_runs_by_now_is_not_discarded(operator, page):
    queue = queues["default"]
    id = queue.put("x")
    shown = page(operator, job_url("default", id))
    response = operator.post(ACT, form_of(shown, "discard-selected"))
    job = queue.get(block=False)
    assert "1 job had changed meanwhile" in messages(confirm(operator, response))
    queue.ack(job)


def test_a_store_that_fails_is_named_and_the_other_queue_is_done(fail, operator, act, monkeypatch):
    fail(2)
    fail(2, alias="emails")

    def refuse(*_args, **_options):
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(queues["emails"], "apply", refuse)
    said = messages(act(operator, "retry-all"))
    assert "Retried 2 failed jobs." in said
    assert "The queue “emails” could not do it: StoreUnavailable: The disk is gone." in said
    assert states("default") == (2, 0, 0)


def test_a_queue_is_paused_and_resumed_by_a_button(operator, page):
    shown = page(operator, OVERVIEW)
    assert shown.field("queue") == "default"
    response = operator.post(
        f"{OVERVIEW}pause/", {"queue": "default", "next": shown.field("next")}, follow=True
    )
    assert "The queue “default” is paused" in messages(response)
    assert queues["default"].stats().paused
    assert not queues["emails"].stats().paused
    assert "paused" in Page(response.content.decode()).text
    operator.post(f"{OVERVIEW}resume/", {"queue": "default"})
    assert not queues["default"].stats().paused


def purge_page(client, page, **query):
    return page(client, f"{OVERVIEW}purge/?" + "&".join(f"{k}={v}" for k, v in query.items()))


def test_purging_by_age_first_says_how_many_and_changes_nothing(fail, operator, page):
    fail(3)
    shown = purge_page(operator, page, state="failed", age=0, unit="days")
    assert "3 jobs" in shown.text
    assert states() == (0, 3, 0)
    assert "0 jobs" in purge_page(operator, page, state="failed", age=1, unit="days").text


def test_purging_by_age_takes_one_state_of_the_chosen_queues(fail, operator, page):
    fail(3)
    fail(2, alias="emails")
    queue = queues["default"]
    queue.put("done")
    queue.ack(queue.get(block=False))
    shown = purge_page(operator, page, state="failed", age=0, unit="hours", queue="default")
    fields = dict(shown.fields)
    later = fail(1)
    response = operator.post(ACT, fields | {"word": ["purge"], "queue": []}, follow=True)
    assert "Purged 3 jobs." in messages(response)
    assert states() == (0, 1, 1)
    assert [record.id for record in queue.list_failed()] == later
    assert states("emails") == (0, 2, 0)


def test_purging_acked_jobs_by_age_leaves_dead_letters(fail, operator, page):
    fail(1)
    queue = queues["default"]
    queue.put("done")
    queue.ack(queue.get(block=False))
    shown = purge_page(operator, page, state="acked", age=0, unit="days")
    response = operator.post(ACT, dict(shown.fields) | {"word": ["purge"]}, follow=True)
    assert "Purged 1 job." in messages(response)
    assert states() == (0, 1, 0)


def test_purging_by_an_age_before_all_time_offers_nothing(fail, operator, page):
    fail(1)
    shown = purge_page(operator, page, state="failed", age=100_000, unit="weeks")
    assert "0 jobs" in shown.text
    assert "word" not in shown.fields


@pytest.mark.parametrize("query", ["age=-1", "age=x", "age=", "unit=years", "state=ready"])
def test_purging_by_age_refuses_what_it_does_not_understand(query, fail, operator, page):
    name, value = query.split("=")
    shown = purge_page(
        operator, page, **{"state": "failed", "age": "0", "unit": "days", name: value}
    )
    assert "act" not in shown.fields
