"""When a schedule is due: cron expressions in a time zone.

The expressions are read by cronsim, which follows Debian's cron, at summer time too: a time
of day that is skipped in spring is run right after the gap, one that comes twice in autumn is
run once, and what runs every so many minutes goes on by the clock that never jumps.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Iterator

from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import MICROSECONDS, to_datetime

SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Timing:
    """A cron expression of five fields, or a shorthand such as ``@daily``, in a time zone.

    Raises ``InvalidInput`` naming what is wrong, also where cronsim isn't installed, so that the
    system check of the schedules tells it.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        try:
            import cronsim  # a project without schedules has no use for it
        except ImportError:
            raise InvalidInput(
                "Recurring jobs need cronsim: pip install django-localqueue[schedules]."
            ) from None
        if not isinstance(expression, str):
            raise InvalidInput(f"The cron expression must be text, and it is {expression!r}.")
        self._times = cronsim.CronSim
        self._fields = SHORTHANDS.get(expression.strip().lower(), expression)
        if len(self._fields.split()) != 5:
            raise InvalidInput(
                f"The cron expression {expression!r} must have five fields: minute, hour, day of"
                f" the month, month, day of the week; or be one of {', '.join(SHORTHANDS)}."
            )
        try:
            self._zone = zoneinfo.ZoneInfo(timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
            raise InvalidInput(f"There is no time zone {timezone!r}: {error}.") from None
        try:
            self.after(0)
        except cronsim.CronSimError as error:
            raise InvalidInput(f"The cron expression {expression!r} can't be: {error}.") from None
        except StopIteration:
            raise InvalidInput(f"The cron expression {expression!r} never comes true.") from None

    def after(self, moment: int) -> int:
        """Return the first time after ``moment``, both in microseconds since the epoch."""
        local = to_datetime(moment).astimezone(self._zone)
        found: datetime.datetime = next(self._times(self._fields, local))
        return round(found.timestamp()) * MICROSECONDS

    def until(self, first: int, last: int) -> Iterator[int]:
        """Return ``first`` and the times after it, as long as they are not after ``last``."""
        while first <= last:
            yield first
            first = self.after(first)
