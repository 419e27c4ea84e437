"""A range by time: the offsets that hold each record of it, and what the user should know of them."""

from __future__ import annotations

from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange, Vector, all_told, between, lower, total
from rewind.core.periods import Dated, Period, milliseconds
from rewind.core.planning import requested_range
from rewind.core.planning.resolved_range import Sight


def dated(start: str, end: str, sight: Sight) -> Dated:
    """Return what a request asks for by time.

    Args:
        start: Where from, as the form gives it.
        end: Where to; empty for none.
        sight: What it is resolved against.

    Raises:
        RefusedError: A text that cannot be read, an instant to come, or an end before the start.
    """
    since = _timestamp(start, "from", sight)
    until = _timestamp(end, "to", sight) if end else None
    period = Period(since, until)
    if period == Period():
        return Dated()
    if since is not None and until is not None and since >= until:
        raise RefusedError("to", f"the range is empty or inverted ({start} to {end})", "Choose a later end")
    reach = sight.mirrored("from" if since is not None else "to").end()
    found = sight.instants.within(sight.topic.name, period)
    # What the mirror has read since it was looked at belongs to no plan of that look.
    ranges = {p: r.overlap(OffsetRange(0, reach[p])) for p, r in found.items() if p in reach}
    return Dated(period, {p: r for p, r in ranges.items() if len(r)})


def _timestamp(text: str, field: str, sight: Sight) -> int | None:
    found = requested_range.parse(text, sight.topic.name, field, sight.now)
    if not isinstance(found, requested_range.At):
        return None
    if found.instant > sight.now:
        raise RefusedError(
            field, f"{found.instant.isoformat()} lies in the future", "Ask for an instant that has passed"
        )
    return milliseconds(found.instant)


def remarks(dated: Dated, start: Vector, end: Vector, sight: Sight) -> list[str]:
    """Return what the user should know of a range by time: records of other times in it, and what it leaves out.

    Args:
        dated: What the request asks for by time.
        start: First offset of the range, per partition.
        end: Offset after the last one.
        sight: What it was resolved against.
    """
    if not dated.asked:
        return []
    mirrored = sight.mirrored("from").end()
    others = sight.instants.strays(sight.topic.name, between(start, lower(end, mirrored)), dated.period)
    # A rewind goes on to the end of the topic, and offsets that a user names are the end whatever lies behind.
    unread = between(mirrored, sight.topic.end()) if dated.period.until is not None else {}
    texts = (
        (
            others.records,
            "the range holds {:,} records of other times: Kafka's timestamps run backwards or ahead there",
        ),
        (
            others.unknown,
            "the times of {:,} records in the range were not recorded when they were mirrored: some may be others",
        ),
        (
            total(unread),
            f"{{:,}} offsets are left out, whatever their time: the mirror has not read {all_told(unread)}",
        ),
    )
    return [text.format(number) for number, text in texts if number]
