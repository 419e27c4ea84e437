"""Instants and durations as users write them. All instants are UTC; `now` is always an argument."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rewind.core.errors import RefusedError

LONGEST = timedelta(days=36_525)
"""A century: any instant of our time can be moved by it."""

INSTANT = r"\d{4}-\d{2}-\d{2}[T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}(:?\d{2})?)"
"""How an instant looks; whether there is such a day and hour, `parse_instant` says."""
DURATION = r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?"
"""How a duration looks."""
_UNITS = ("days", "hours", "minutes", "seconds")


def parse_instant(text: str, field: str) -> datetime:
    """Return the instant of an ISO 8601 text.

    Raises:
        RefusedError: No ISO text, a date that does not exist, or no zone: a local time can name two instants.
    """
    example = "Write it with its zone, as 2025-09-04T07:00:00Z"
    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        raise RefusedError(field, f"{text!r} is not an ISO-8601 timestamp ({error})", example) from None
    if value.tzinfo is None:
        raise RefusedError(field, f"{text!r} has no time zone", example)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise RefusedError(field, f"{text!r} is not a date of the calendar in UTC", example) from None


def parse_duration(text: str, field: str) -> timedelta:
    """Return the length of an ISO 8601 duration of days, hours, minutes and seconds.

    Raises:
        RefusedError: Another form, no length at all, or more than `LONGEST`.
    """
    match = re.fullmatch(DURATION, text)
    if match is None:
        raise RefusedError(field, f"{text!r} is not an ISO-8601 duration", "Write P9D, PT1H, PT90S or P1DT12H")
    parts = {unit: int(number) for unit, number in zip(_UNITS, match.groups(), strict=True) if number}
    try:
        length = timedelta(**parts)
    except OverflowError:
        length = timedelta.max
    if length > LONGEST:
        raise RefusedError(field, f"{text!r} is longer than a century", "Write a shorter duration")
    return length


def format_instant(value: datetime) -> str:
    """Return the instant in ISO form with milliseconds and `Z`."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
