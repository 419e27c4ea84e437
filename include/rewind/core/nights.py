"""Nights: which stretch of history a nightly replay takes, so that each record is replayed once.

A night is an interval between two instants of UTC; its date is a label. Offsets join the nights: one begins where the
one before it ended, whatever the clock of a time zone did meanwhile, and what was appended late is in the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rewind.core.errors import RefusedError
from rewind.core.offsets import Ranges, Vector, between, higher, lower
from rewind.core.pipeline import Pipeline
from rewind.core.times import parse_instant

RUNNING, CONSISTENT, DRIFTED, ERROR, NOTHING, NOT_REPLAYED = (
    "running",
    "consistent",
    "drifted",
    "error",
    "nothing",
    "not_replayed",
)
"""States of a night. `NOTHING`: no record came, or no result closed, so that there was nothing to compare.
`NOT_REPLAYED`: nobody looked, which is no sign of health."""
ANSWERED = frozenset({CONSISTENT, DRIFTED, NOTHING})
"""States in which its range is behind it."""
LEAST_SHARE = 0.0001
EXAMPLE = '{"partitions": [0, 1], "share": 0.1}'


@dataclass(frozen=True)
class Sample:
    """Which records of a night are replayed.

    Attributes:
        partitions: Source partitions; none for all.
        share: Share of the keys, by their hash: of each key all records or none; 1 for all.
    """

    partitions: tuple[int, ...] = ()
    share: float = 1.0

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return not self.partitions and self.share == 1.0

    @property
    def hash(self) -> str:
        """What tells it from others."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"partitions": list(self.partitions), "share": self.share}

    def told(self) -> str:
        """Return it in words."""
        parts = f"partitions {', '.join(map(str, self.partitions))}" if self.partitions else "all partitions"
        return parts if self.share == 1.0 else f"{parts}, {self.share:.2%} of the keys"


@dataclass(frozen=True)
class Night:
    """What a run is asked to replay.

    Attributes:
        pipeline: Of which pipeline.
        start: First instant of the interval, UTC.
        end: Instant after it, UTC.
        label: Its date.
        sample: Which records.
    """

    pipeline: str
    start: datetime
    end: datetime
    label: str
    sample: Sample


@dataclass(frozen=True)
class Known:
    """A night that has a range already.

    Attributes:
        start: First instant of the interval, UTC.
        end: Instant after it, UTC.
        ranges: Its source offsets.
    """

    start: datetime
    end: datetime
    ranges: Ranges


def label_of(start: datetime, zone: str) -> str:
    """Return the date of a night: that of its first instant, where its people live.

    Raises:
        RefusedError: There is no such zone.
    """
    # It looks at how Python was built: nothing that all who import the core should pay for.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return start.astimezone(ZoneInfo(zone)).date().isoformat()
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise RefusedError("REWIND_NIGHTLY_ZONE", f"{zone!r} is no time zone ({error})", "As in Europe/Paris") from None


def interval(start: str, end: str) -> tuple[datetime, datetime]:
    """Return the instants of an interval in UTC.

    Raises:
        RefusedError: One is not an ISO-8601 timestamp, or they are not in order.
    """
    first, last = parse_instant(start, "start"), parse_instant(end, "end")
    if first >= last:
        raise RefusedError("end", f"{end} is not after {start}", "Swap them: the end must be after the start")
    return first, last


def sample_of(body: Any) -> Sample:
    """Return the sample that parameters describe; missing ones mean all.

    Raises:
        RefusedError: A parameter is unknown, or its value makes no sense.
    """
    if not isinstance(body, Mapping) or body.keys() - {"partitions", "share"}:
        raise RefusedError("sample", f"{body!r} is no sample", f"Write it as {EXAMPLE}")
    partitions, share = body.get("partitions") or [], body.get("share", 1.0)
    whole = isinstance(partitions, list | tuple) and all(type(p) is int and p >= 0 for p in partitions)
    if not whole:
        raise RefusedError(
            "partitions", f"{partitions!r} must be a list of partition numbers", "Give integers, as [0, 1]"
        )
    if isinstance(share, bool) or not isinstance(share, int | float) or not LEAST_SHARE <= share <= 1:
        problem = f"{share!r} is no share of the keys"
        raise RefusedError("share", problem, f"Give a number from {LEAST_SHARE} up to 1")
    return Sample(tuple(sorted(set(partitions))), float(share))


def check_sample(sample: Sample, pipeline: Pipeline, partitions: Mapping[int, int]) -> None:
    """Check that a pipeline can be replayed by a sample.

    Raises:
        RefusedError: Its results depend on all records, or a partition does not exist.
    """
    if pipeline.stateful and not sample.whole:
        problem = f"{pipeline.name} keeps state: a result may count records of any key and partition"
        raise RefusedError("sample", problem, "Replay it completely")
    unknown = [p for p in sample.partitions if p not in partitions]
    if unknown:
        raise RefusedError("partitions", f"{pipeline.source_topic} has no partition {unknown[0]}", "Fix the list")


def range_of(night: Night, known: Sequence[Known], at_start: Vector, at_end: Vector, replayable: Vector) -> Ranges:
    """Return the source offsets of a night.

    A night of the same interval has the same, whatever its sample. Else it begins where the night before it ended and
    ends where the one after it begins, if those are known; and otherwise where the instants are. Where intervals
    overlap, as after a change of the schedule, the offsets do not.

    Args:
        night: The night.
        known: Other nights of the pipeline.
        at_start: Per partition the first offset of a record that is as young as the night's first instant.
        at_end: The same for its end.
        replayable: Up to where it can be replayed by now.
    """
    same = next((k for k in known if (k.start, k.end) == (night.start, night.end)), None)
    if same is not None:
        return same.ranges
    before = max((k for k in known if k.start < night.start), key=lambda k: (k.end, k.start), default=None)
    after = min((k for k in known if k.start > night.start), key=lambda k: (k.start, k.end), default=None)
    first = _first(night, before, at_start)
    last = {**replayable, **lower(replayable, at_end)}
    if after is not None:
        begins = {p: r.start for p, r in after.ranges.items() if p in last}
        last |= begins if after.start == night.end else lower(last, begins)
    # What cannot be replayed yet is left to the next night.
    return between({p: min(first.get(p, 0), offset) for p, offset in replayable.items()}, last)


def _first(night: Night, before: Known | None, at_start: Vector) -> Vector:
    if before is None:
        return dict(at_start)
    ended = {p: r.end for p, r in before.ranges.items()}
    # A partition that was added meanwhile begins with the night.
    return {**at_start, **ended} if before.end == night.start else higher(at_start, ended)


def utc(instant: datetime) -> datetime:
    """Return an instant as the registry has it: UTC without zone."""
    return instant.astimezone(UTC).replace(tzinfo=None)
