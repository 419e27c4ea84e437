"""The horizon: on what two outputs can be compared, frozen once a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rewind.core.errors import IntegrityError
from rewind.core.model import Topic
from rewind.core.offsets import OffsetRange, Ranges, Vector, lower


@dataclass(frozen=True)
class Frontier:
    """How far two outputs have been compared.

    Attributes:
        ceiling: Source offset after the last one compared, per partition.
        unread: Per output topic, by id, the first offset of each partition at or after which a row of a later source
            may stand. A topic or partition it lacks has to be read from its beginning.
        closed: For pipelines with state, the watermark up to which closed results were compared, in milliseconds since
            1970.
        ends: Per output topic, by id, the offset after the last one that was read. What stands later and is of an
            earlier source was written since: what was said of it may no longer be so.
    """

    ceiling: Vector
    unread: Mapping[str, Vector] = field(default_factory=dict)
    closed: int = 0
    ends: Mapping[str, Vector] = field(default_factory=dict)

    def since(self, position: Mapping[int, int]) -> Ranges:
        """Return the source offsets from the ceiling up to a position."""
        return {p: OffsetRange(min(self.ceiling.get(p, 0), o), o) for p, o in sorted(position.items())}


def first_unread(topic: Topic, unread: Mapping[str, Vector]) -> Vector:
    """Return from where on an output topic has to be read.

    Args:
        topic: The topic as it is now.
        unread: What a `Frontier` says of topics.

    Raises:
        IntegrityError: The topic ends before what was read of it: it lost records.
    """
    known = unread.get(topic.id, {})
    lost = {p: (known[p], end) for p, end in topic.latest.items() if known.get(p, 0) > end}
    if lost:
        raise IntegrityError(f"{topic.name} lost records: (read up to, ends at) per partition: {lost}")
    return {p: max(first, known.get(p, 0)) for p, first in topic.earliest.items()}


def horizon(
    candidate_start: Mapping[int, int],
    live_start: Mapping[int, int],
    live_whole: Mapping[int, int],
    candidate_position: Mapping[int, int],
    live_position: Mapping[int, int],
) -> Ranges:
    """Return per partition what both outputs must hold alike.

    Args:
        candidate_start: Where the candidate's own history starts.
        live_start: Where live's own history started.
        live_whole: First source offset that is still whole in live's output, where some was taken from it.
        candidate_position: Next offset the candidate will read, from its last committed batch.
        live_position: The same of live.

    Returns:
        From the highest of the starts to the lower of the positions.
    """
    ceiling: Vector = lower(candidate_position, live_position)
    floors = {p: max(candidate_start.get(p, 0), live_start.get(p, 0), live_whole.get(p, 0)) for p in ceiling}
    return {p: OffsetRange(floors[p], max(ceiling[p], floors[p])) for p in sorted(ceiling)}
