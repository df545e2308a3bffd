from __future__ import annotations

from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from testproject.catalogue.models import File
from testproject.catalogue.search import MAX_QUERY, search

MEMBERS_SHOWN = 200


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """The form and one page of what matches; without a question, what the catalogue holds."""
    query = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_QUERY]
    context: dict[str, object] = {"query": query, "max_query": MAX_QUERY}
    if query:
        number = request.GET.get("page", "")
        # Nine digits are more pages than there are, and few enough for any integer.
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 1
        context["results"] = search(query, page)
    else:
        context["totals"] = File.objects.aggregate(
            files=Count("pk"), bytes=Sum("size", default=0), words=Sum("word_count", default=0)
        )
        context["types"] = (
            File.objects.order_by()
            .values("mime_type")
            .annotate(files=Count("pk"), bytes=Sum("size"))
            .order_by("-files", "mime_type")[:12]
        )
    return render(request, "catalogue/search.html", context)


@require_safe
def file_page(request: HttpRequest, pk: int) -> HttpResponse:
    """What is known of one file, and the files in it where it is an archive."""
    file = get_object_or_404(File.objects.select_related("archive"), pk=pk)
    members = file.members.all()
    context = {
        "file": file,
        "members": members[:MEMBERS_SHOWN],
        "member_count": members.count(),
    }
    return render(request, "catalogue/file.html", context)
