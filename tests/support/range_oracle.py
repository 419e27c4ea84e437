"""What ranges, ends and lags must be, worked out in plain Python from what was written: no code of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PLAIN = "plain"
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass
class Line:
    """One offset of a partition: a record, or the marker of a transaction that ended."""

    offset: int
    at: int
    writer: str
    marker: bool = False


@dataclass
class Log:
    """All that was written to a topic, and how each transaction stands."""

    partitions: int
    lines: dict[int, list[Line]] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=lambda: {PLAIN: COMMITTED})

    def write(self, partition: int, times: Iterable[int], writer: str = PLAIN) -> None:
        """Append records of a writer: nobody's transaction, or one that is open until it ends."""
        self.state.setdefault(writer, OPEN)
        lines = self.lines.setdefault(partition, [])
        for at in times:
            lines.append(Line(len(lines), at, writer))

    def end(self, writer: str, how: str) -> None:
        """End a transaction: a marker in each partition that it wrote to."""
        self.state[writer] = how
        for lines in self.lines.values():
            if any(line.writer == writer for line in lines):
                lines.append(Line(len(lines), 0, writer, marker=True))

    def written(self) -> dict[int, int]:
        """Return the end of what was written."""
        return {p: len(self.lines.get(p, [])) for p in range(self.partitions)}

    def readable(self) -> dict[int, int]:
        """Return the end of what can be read: the first record of an open transaction, if there is one."""
        ends = self.written()
        for p, lines in self.lines.items():
            waiting = [line.offset for line in lines if self.state[line.writer] == OPEN]
            ends[p] = min([ends[p], *waiting])
        return ends

    def records(self) -> dict[tuple[int, int], int]:
        """Return place and time of each record that can be read."""
        ends = self.readable()
        return {
            (p, line.offset): line.at
            for p, lines in self.lines.items()
            for line in lines
            if not line.marker and self.state[line.writer] == COMMITTED and line.offset < ends[p]
        }


def held(log: Log) -> list[str]:
    """Return what a plan must say of open transactions."""
    readable, written = log.readable(), log.written()
    return [
        f"partition {p} is held back by an open transaction: readable to {readable[p]}, written to {written[p]}"
        for p in range(log.partitions)
        if readable[p] < written[p]
    ]


def lag(log: Log, position: Mapping[int, int]) -> int:
    """Return how many offsets lie between a position and the end of what was written."""
    return sum(max(0, end - position.get(p, 0)) for p, end in log.written().items())


@dataclass(frozen=True)
class Wanted:
    """What a plan of a range by time must be.

    Attributes:
        start: First offset.
        end: Offset after the last one.
        others: Records in it whose time lies outside.
        unread: Offsets that nobody has looked at, because the mirror has not come there.
    """

    start: dict[int, int]
    end: dict[int, int]
    others: int
    unread: int


def wanted(
    log: Log, mirrored: Mapping[tuple[int, int], int], reach: Mapping[int, int], since: int | None, until: int | None
) -> Wanted:
    """Return what a plan must be.

    Args:
        log: The topic.
        mirrored: Place and time of the records that the mirror holds, from offset 0 on.
        reach: Where the mirror ends.
        since: First time that is asked for; None for from the earliest record on.
        until: First time that is no longer asked for; None for a rewind, which goes to the end.
    """
    start, end, others = {}, {}, 0
    for p in range(log.partitions):
        mine = sorted((offset, at) for (q, offset), at in mirrored.items() if q == p)
        inside = [offset for offset, at in mine if since is None or at >= since if until is None or at < until]
        start[p] = 0 if since is None else inside[0] if inside else reach[p]
        if until is None:
            end[p] = log.readable()[p]
        else:
            end[p] = inside[-1] + 1 if inside else start[p]
        others += sum(start[p] <= offset < end[p] and offset not in inside for offset, _ in mine)
    unread = 0 if until is None else sum(end - reach[p] for p, end in log.written().items())
    return Wanted(start, end, others, unread)
