"""Which offsets hold the records of a period, by what the commits of a mirror recorded of Kafka's timestamps.

A timestamp is what a producer's or the broker's clock said: along the offsets it may stand still, run backwards or lie
ahead. So the offsets of a period reach from its first record to its last, and records of other times may lie between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rewind.core.offsets import OffsetRange, Ranges, merged

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_PARTS = 100
"""Parts of a partition that are looked at one by one; of more, all that lies between is looked at too."""


@dataclass(frozen=True)
class Period:
    """Timestamps as Kafka has them, in milliseconds since 1970, half-open.

    Attributes:
        since: The earliest of them; None for no bound.
        until: The one after the latest; None for no bound.
    """

    since: int | None = None
    until: int | None = None

    def holds(self, at: int) -> bool:
        """Return whether a timestamp lies in the period."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def meets(self, first: int, last: int) -> bool:
        """Return whether a timestamp between two others, both included, may lie in the period."""
        return (self.since is None or last >= self.since) and (self.until is None or first < self.until)


@dataclass(frozen=True)
class Dated:
    """What a request asks for by time.

    Attributes:
        period: The timestamps; no bound where it asks for offsets.
        found: Offsets from the first to after the last mirrored record of it, of each partition that holds any.
    """

    period: Period = field(default_factory=Period)
    found: Ranges = field(default_factory=dict)

    @property
    def asked(self) -> bool:
        """Whether anything is asked by time."""
        return self.period != Period()


@dataclass(frozen=True)
class Span:
    """What one commit of a mirror holds of a partition.

    Attributes:
        part: Offsets from its first record to after its last.
        records: Records in them.
        times: Their earliest and latest timestamp; None when they were not recorded.
        whole: Whether all of them are still there.
    """

    part: OffsetRange
    records: int
    times: tuple[int, int] | None
    whole: bool = True

    def may(self, period: Period) -> bool:
        """Return whether it may hold a record of a period."""
        return self.times is None or period.meets(*self.times)

    def surely(self, period: Period) -> bool:
        """Return whether it holds a record of a period."""
        return self.whole and self.times is not None and any(map(period.holds, self.times))

    def wholly(self, period: Period) -> bool:
        """Return whether all its records are of a period."""
        return self.times is not None and all(map(period.holds, self.times))


@dataclass(frozen=True)
class Strays:
    """Records of other times than those of a period.

    Attributes:
        records: How many there are for sure.
        unknown: Of how many more it is not recorded.
    """

    records: int
    unknown: int


Parts = Mapping[int, Sequence[OffsetRange]]
"""Offsets by partition."""
Spans = Mapping[int, Sequence[Span]]
"""What the commits of a mirror hold, by partition, in the order of offsets."""


def milliseconds(instant: datetime) -> int:
    """Return the first timestamp of Kafka's that is not before an instant."""
    return -((EPOCH - instant) // timedelta(milliseconds=1))


def within(spans: Spans, period: Period, look: Callable[[Parts], Ranges]) -> Ranges:
    """Return per partition the offsets from the first to after the last record of a period; absent where is none.

    Args:
        spans: What the commits recorded.
        period: The period.
        look: Returns the same of the records at some offsets, by reading them: few, at both ends.
    """
    sides = {p: (_reached(parts, period), _reached(parts[::-1], period)) for p, parts in spans.items()}
    read = {p: merged(_to_be_looked_at(side, period) for side in both) for p, both in sides.items()}
    found = {p: [s.part for side in both for s in side if not _doubtful(s, period)] for p, both in sides.items()}
    for p, part in look({p: parts for p, parts in read.items() if parts}).items() if any(read.values()) else ():
        found[p].append(part)
    return {p: _hull(parts) for p, parts in sorted(found.items()) if parts}


def _reached(spans: Sequence[Span], period: Period) -> list[Span]:
    """Return the first spans that may hold a record of a period, up to one that does."""
    return list(_until_sure((span for span in spans if span.may(period)), period))


def _until_sure(spans: Iterable[Span], period: Period) -> Iterator[Span]:
    for span in spans:
        yield span
        if span.surely(period):
            return


def _doubtful(span: Span, period: Period) -> bool:
    return not (span.whole and span.wholly(period))


def _to_be_looked_at(spans: Iterable[Span], period: Period) -> OffsetRange:
    parts = [span.part for span in spans if _doubtful(span, period)]
    return _hull(parts) if parts else OffsetRange(0, 0)


def _hull(parts: Sequence[OffsetRange]) -> OffsetRange:
    return OffsetRange(min(part.start for part in parts), max(part.end for part in parts))


def strays(spans: Spans, ranges: Ranges, period: Period, count: Callable[[Parts], int]) -> Strays:
    """Return how many records at some offsets lie outside a period.

    Args:
        spans: What the commits recorded.
        ranges: The offsets.
        period: The period.
        count: Returns how many records at some offsets lie outside it, by reading them.
    """
    read, known, unknown = {}, 0, 0
    for p, wanted in ranges.items():
        here = [span for span in spans.get(p, ()) if len(span.part.overlap(wanted))]
        read[p] = _to_be_read(here, wanted, period)
        for span in here:
            part = span.part.overlap(wanted)
            if any(len(part.overlap(other)) for other in read[p]):
                continue
            if span.times is None:
                unknown += min(span.records, len(part))
            elif not span.wholly(period):
                known += span.records
    read = {p: parts for p, parts in read.items() if parts}
    return Strays(known + (count(read) if read else 0), unknown)


def _to_be_read(spans: Iterable[Span], wanted: OffsetRange, period: Period) -> list[OffsetRange]:
    """Return the offsets of spans of which only some records are wanted, or are of the period."""
    parts = merged(span.part.overlap(wanted) for span in spans if _must_be_read(span, wanted, period))
    return parts if len(parts) <= MOST_PARTS else [_hull(parts)]


def _must_be_read(span: Span, wanted: OffsetRange, period: Period) -> bool:
    if span.times is None or span.wholly(period):
        return False
    return span.may(period) or not span.whole or span.part.overlap(wanted) != span.part
