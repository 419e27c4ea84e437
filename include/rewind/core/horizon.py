"""The horizon: on what two outputs can be compared, frozen once a check."""

from __future__ import annotations

from collections.abc import Mapping

from rewind.core.offsets import OffsetRange, Ranges, Vector, lower


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
