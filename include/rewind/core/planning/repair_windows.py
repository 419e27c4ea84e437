"""A repair of a pipeline with state: which results it makes anew, and which records it reads for them."""

from __future__ import annotations

from datetime import datetime

from rewind.core.errors import RefusedError
from rewind.core.model import Generation, LifecycleReader
from rewind.core.offsets import Vector, lower
from rewind.core.planning import requested_range
from rewind.core.planning.resolved_range import Sight


def touched(
    start: str, end: str, live: Generation, history: LifecycleReader, topic: str, now: datetime
) -> tuple[int, int]:
    """Return the event time whose results are made anew, `[from, to)` in milliseconds since 1970.

    Args:
        start: First instant, as the form gives it.
        end: Instant after the last one.
        live: The live generation.
        history: Its batches.
        topic: Source topic, for the errors.
        now: The instant that a duration counts back from.

    Raises:
        RefusedError: No instants, an inverted range, or results that live has not closed: it would write them again.
    """
    first, last = _instant(start, "from", topic, now), _instant(end, "to", topic, now)
    if first >= last:
        raise RefusedError("to", f"the range is empty or inverted ({start} to {end})", "Choose a later end")
    newest = history.newest_batch(live.job_id)
    closed = 0 if newest is None else newest.closing_watermark
    if last > closed:
        told = datetime.fromtimestamp(closed / 1000, now.tzinfo).isoformat()
        problem = f"{live.job_id} has closed results up to {told} only: it will write later ones itself"
        raise RefusedError("to", problem, "Choose an earlier end, or wait")
    return first, last


def read_for(sight: Sight) -> tuple[Vector, Vector]:
    """Return the offsets that are read: all of the mirror that live has read too, for a late record may lie anywhere.

    Raises:
        RefusedError: There is no mirror.
    """
    mirror = sight.mirrored("from")
    end = lower(mirror.end(), sight.position)
    start = {p: min(mirror.start().get(p, o), o) for p, o in end.items()}
    return start, end


def _instant(text: str, field: str, topic: str, now: datetime) -> int:
    found = requested_range.parse(text, topic, field, now)
    if not isinstance(found, requested_range.At):
        problem = f"{text!r} is not a timestamp, and results are repaired by their event time"
        raise RefusedError(field, problem, "Write it as 2025-09-04T07:00:00Z")
    return int(found.instant.timestamp() * 1000)
