"""The overview of the queues, pause and resume, and purging by age."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console import audit, permissions
from django_localqueue.console.acts import PURGE_WORD, preview
from django_localqueue.console.audit import Act
from django_localqueue.console.display import age, moment
from django_localqueue.console.filters import STATE_LABELS, AgeForm
from django_localqueue.console.stores import Unreadable, as_of, ask, known, overview
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.types import MICROSECONDS, JobFilter


class OverviewView(ConsoleView):
    """Every queue with its counts; a store that can't be read shows its error."""

    template_name = f"admin/{APP}/overview.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_queue")
        job_viewable = set(permissions.allowed(request, "view_job", names))
        pausable = set(permissions.allowed(request, "pause_queue", names))
        rows = [
            {
                "row": row,
                "oldest_age": age(row.oldest_age),
                "oldest_at": moment(row.stats.oldest_ready_at if row.stats else None),
                "dead_letters_url": self.letters_url(row.alias),
                "can_view_jobs": row.alias in job_viewable,
                "can_pause": row.alias in pausable,
            }
            for row in overview(names)
        ]
        context = {
            "rows": rows,
            "pause_url": self.url("queue_pause"),
            "resume_url": self.url("queue_resume"),
            "purge_url": self.url("queue_purge"),
            "find_url": self.url("job_find"),
            "can_pause_some": bool(pausable),
            "can_purge_some": bool(permissions.allowed(request, "purge_queue", names)),
            "can_view_some_jobs": bool(job_viewable),
        }
        return self.render(_("Queues"), context, crumbs=())

    def letters_url(self, alias: str) -> str:
        """Return the address of one queue's dead letters."""
        return f"{self.url('job_changelist')}?{urlencode({'queue': alias})}"


class QueueView(ConsoleView):
    """Where the admin's log leads for an act on a queue: to the overview."""

    def get(self, request: HttpRequest, object_id: str) -> HttpResponse:
        permissions.require_some(request, "view_queue")
        return HttpResponseRedirect(self.url("queue_changelist"))


class PauseView(ConsoleView):
    """Stop deliveries of one queue."""

    http_method_names = ("post",)
    action = "pause"
    done = gettext_lazy("The queue “%s” is paused: its jobs wait, and new ones are still taken.")

    def post(self, request: HttpRequest) -> HttpResponse:
        alias = known(request.POST.get("queue", ""))
        permissions.require(request, "pause_queue", alias)
        answer = ask(alias, lambda queue: getattr(queue, self.action)())
        if isinstance(answer, Unreadable):
            self.report(Act(self.action, [alias], errors={alias: answer.error}))
        else:
            audit.record(request, Act(self.action, [alias]))
            messages.success(request, self.done % alias)
        return self.back(self.url("queue_changelist"))


class ResumeView(PauseView):
    """Start deliveries of one queue again."""

    action = "resume"
    done = gettext_lazy("The queue “%s” is resumed.")


class PurgeByAgeView(ConsoleView):
    """Asks which finished jobs to purge, and says how many that would be.

    Only looks: the act itself is a POST to the view that does all acts on jobs.
    """

    template_name = f"admin/{APP}/purge.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "purge_queue")
        form = AgeForm(request.GET if "state" in request.GET else None, names)
        context: dict[str, object] = {"form": form, "act_url": self.url("job_act")}
        if form.is_valid():
            context |= self.dry_run(form)
        return self.render(_("Purge by age"), context, crumbs=[self.list_crumb("queue")])

    def dry_run(self, form: AgeForm) -> dict[str, object]:
        """Return how many jobs are that old now, and what the act's form carries."""
        chosen = form.chosen()
        cutoff = max(0, as_of(chosen) - form.seconds() * MICROSECONDS)
        state = form.cleaned_data["state"]
        found = preview(chosen, JobFilter(state=state), cutoff)
        return {
            "preview": found,
            "count_text": found.text,
            "sample": found.lines,
            "word": PURGE_WORD,
            "cutoff": str(cutoff),
            "cutoff_time": moment(cutoff),
            "state": state,
            "state_label": STATE_LABELS[state],
            "chosen": chosen,
            "filter": urlencode({"queue": chosen}, doseq=True),
            "next": self.url("queue_changelist"),
        }
