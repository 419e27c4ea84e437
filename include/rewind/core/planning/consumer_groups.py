"""Downstream consumer groups: where each goes on in another output of the same pipeline, and what that means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.offsets import Vector, to_spark_json
from rewind.core.pipeline import DELTA, Pipeline

KEEP, REPLAY = "keep", "replay"
"""What becomes of records that only the new output has below a group's position: it keeps its place, and they are
counted and listed; or it goes back to those from a source offset on."""
LISTED = 1_000
"""Most records that are listed by their coordinates; all are counted."""


@dataclass(frozen=True)
class Sides:
    """Two generations of a pipeline: groups have read the output of `old`, and go on in that of `new`."""

    old: Generation
    new: Generation


@dataclass(frozen=True)
class Held:
    """What a group has read.

    Attributes:
        group: The consumer group.
        read: Its committed position in the old output, per output partition.
        before: The same in the new output; empty when it never read that.
        started: Where it began to read the new output, when it was moved there earlier.
    """

    group: str
    read: Vector
    before: Vector
    started: Vector


@dataclass(frozen=True)
class Move:
    """One group carried from one output to another.

    Attributes:
        group: The consumer group.
        from_job: The job whose output it has read.
        to_job: The job whose output it goes on in.
        to_topic: That output.
        before: Its committed position there when the move was computed; empty when there was none.
        positions: Where it goes on, per output partition.
        repeats: Records at or after those positions that it has read before, in either output.
        left_out: Source records that only the new output has, below those positions: it will not read them.
        listed: The first `LISTED` of them, as `partition:offset`, or `partition:offset:row`.
        dropped: Source records that it has not read yet, and that the new output has no row of.
    """

    group: str
    from_job: str
    to_job: str
    to_topic: str
    before: Vector
    positions: Vector
    repeats: int
    left_out: int
    listed: tuple[str, ...]
    dropped: int

    def to_json(self) -> dict[str, Any]:
        """Return the move as JSON takes it."""
        vectors = {name: {str(p): o for p, o in getattr(self, name).items()} for name in ("before", "positions")}
        return {**asdict(self), **vectors, "listed": list(self.listed)}

    def told(self) -> list[str]:
        """Return the move as lines for a person."""
        lines = [
            f"group {self.group}: from {self.from_job} to {to_spark_json(self.to_topic, self.positions)}",
            f"  repeats   {self.repeats:,} records that it has read before",
            f"  left out  {self.left_out:,} records that only {self.to_job} has below its position",
        ]
        if self.listed:
            more = f", and {self.left_out - len(self.listed):,} more" if self.left_out > len(self.listed) else ""
            lines.append(f"            source {', '.join(self.listed)}{more}")
        return [*lines, f"  dropped   {self.dropped:,} records that it has not read and {self.to_job} has no answer to"]


def from_json(body: Mapping[str, Any]) -> Move:
    """Return the move that `Move.to_json` gave."""
    vectors = {name: {int(p): o for p, o in body[name].items()} for name in ("before", "positions")}
    return Move(**{**body, **vectors, "listed": tuple(body["listed"])})


def check_reach(held: Held, earliest: Mapping[int, int], topic: str, replayed: bool) -> None:
    """Refuse a group whose place in the old output is gone: what it missed there cannot be told any more.

    Raises:
        RefusedError: Its position lies before the first record that is still there, and nothing is replayed.
    """
    lost = {p: (at, earliest[p]) for p, at in sorted(held.read.items()) if at < earliest.get(p, 0)}
    if lost and not replayed:
        where = "; ".join(f"partition {p}: at {at}, earliest {first}" for p, (at, first) in lost.items())
        cure = "Choose replay, from the source offset that it has surely read"
        raise RefusedError("consumer_groups", f"{held.group} stands before what {topic} still holds ({where})", cure)


def check_history(group: str, low: Mapping[int, int], start: Mapping[int, int], to_job: str) -> None:
    """Refuse a group that has not yet read what lies before the new job's own history.

    Args:
        group: The group.
        low: First source offset that the group has not read, per source partition.
        start: First source offset of the new job's history.
        to_job: The new job.

    Raises:
        RefusedError: The group would miss records.
    """
    short = {p: (low[p], first) for p, first in sorted(start.items()) if p in low and low[p] < first}
    if short:
        where = "; ".join(f"partition {p}: unread from {at}, begins at {first}" for p, (at, first) in short.items())
        cure = "Let it read on in the old output first, or rewind from further back"
        problem = f"{group} has not read what lies before the history of {to_job} (source {where})"
        raise RefusedError("consumer_groups", problem, cure)


def refuse_unmovable(pipeline: Pipeline) -> None:
    """Check that the readers of a pipeline's output have places that can be carried to another.

    Raises:
        RefusedError: Its output is a table, or holds results by key, which no record of the source stands behind alone.
    """
    if pipeline.output_format == DELTA:
        problem = f"{pipeline.name} writes to a table, which has no consumer groups"
        raise RefusedError("consumer_groups", problem, "Leave them out: readers of a table resolve its name")
    if pipeline.stateful:
        problem = f"{pipeline.name} writes results by key, whose newest versions stand anywhere in another output"
        raise RefusedError(
            "consumer_groups", problem, "Leave them out, and let them read the new output from its start"
        )
