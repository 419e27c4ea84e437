"""From where a rewind of a pipeline with state has to read, so that the results it is asked for are whole.

A result is whole when every record that it counts is read. What was in no record before an offset is told by live's
recorded batches: the watermark of the batch that read on from there is the highest event time before it, less the
logic's delay. So a result that starts after `watermark + delay` holds no record from before that offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewind.core.errors import RefusedError
from rewind.core.model import Generation, LifecycleReader
from rewind.core.offsets import Vector, higher, reached
from rewind.core.pipeline import Pipeline

REPEATS = "DeduplicateWithinWatermark"
"""The operator whose results depend on records that they do not cover: those of which they would be repeats."""


@dataclass(frozen=True)
class Begin:
    """Where a rewind of a pipeline with state begins.

    Attributes:
        start: First offset that it reads, per partition: at or before the one that was asked for.
        trusted_from: Results that start before this instant may lack records, and are neither compared nor published;
            in milliseconds since 1970, None when every result is whole.
    """

    start: Vector
    trusted_from: int | None


def begin(
    asked: Vector, earliest: Vector, pipeline: Pipeline, delay: int, live: Generation, history: LifecycleReader
) -> Begin:
    """Return where to begin so that all results that were open at the asked start are whole.

    Args:
        asked: The start that was asked for, per partition.
        earliest: First offset that the mirror holds, per partition.
        pipeline: The candidate's pipeline.
        delay: How far the logic's watermark lags behind event time, in milliseconds.
        live: The live generation.
        history: Its batches.

    Raises:
        RefusedError: No batch of live tells what was open there, or the horizon is unbounded and the start is not the
            earliest record.
    """
    if reached(earliest, asked):
        return Begin(dict(asked), None)
    horizon = pipeline.horizon_milliseconds
    if horizon is None:
        problem = f"{pipeline.name} has an unbounded state horizon: any record may count, back to {earliest}"
        raise RefusedError("from", problem, "Rewind from earliest")
    opened = history.batch_reaching(live.job_id, asked) or history.newest_batch(live.job_id)
    if opened is None or not reached(asked, live.start):
        problem = f"no batch of {live.job_id}, which began at {live.start}, shows what was open there"
        raise RefusedError("from", problem, "Rewind from earliest, or from where live began")
    before = history.last_batch_closing(live.job_id, opened.closing_watermark - horizon)
    if before is not None and before.closing_watermark > 0:
        wanted = {p: min(offset, before.start.get(p, 0)) for p, offset in asked.items()}
        if reached(wanted, earliest):
            return Begin(wanted, before.closing_watermark + delay + 1)
        # The mirror begins later: what was open at the asked start may lack records.
        return Begin(higher(wanted, earliest), opened.closing_watermark + delay + 1)
    # All that live has read since it began is needed.
    start = higher(live.start, earliest)
    return Begin(start, None if reached(earliest, start) else _own(live, delay, history))


def released(pipeline: Pipeline, delay: int, live: Generation, history: LifecycleReader) -> int | None:
    """Return from when on the results of a release without history are whole: it starts with no state.

    Raises:
        RefusedError: The horizon is unbounded: they never would be.
    """
    if pipeline.horizon_milliseconds is None:
        raise RefusedError("from", f"{pipeline.name} has an unbounded state horizon", "Rewind from earliest")
    newest = history.newest_batch(live.job_id)
    return None if newest is None else newest.closing_watermark + delay + 1


def after_repeats(trusted_from: int | None, state: Sequence[str], delay: int) -> int | None:
    """Return from when on results are whole where some are left out as repeats of a record from before the start.

    Args:
        trusted_from: From when on they are whole by the event time that they cover.
        state: What state the logic keeps (`contract.state_shape`).
        delay: How far its watermark lags behind event time, in milliseconds: within it repeats are found.
    """
    repeats = any(operator.startswith(REPEATS) for operator in state)
    return trusted_from + delay if repeats and trusted_from is not None else trusted_from


def _own(live: Generation, delay: int, history: LifecycleReader) -> int | None:
    """Return from when on live's own results are whole: what came before it is told by its first watermark alone."""
    known = live.trusted_from
    if known is not None:
        return int(known)
    first = history.first_batch_closing_after(live.job_id, 0)
    return None if first is None else first.closing_watermark + delay + 1
