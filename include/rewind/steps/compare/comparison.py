"""Compare the outputs of two generations over a horizon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters import outputs as adapter
from rewind.core import lifecycle
from rewind.core.horizon import Frontier
from rewind.core.model import Generation, Topic
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import reading
from rewind.steps.compare import findings, samples
from rewind.steps.compare.findings import Found
from rewind.steps.compare.keyed_comparison import Keyed
from rewind.transforms.comparing import compare
from rewind.transforms.comparing.keyed import Bounds
from rewind.transforms.records import outputs
from rewind.transforms.values import parsing

NOTHING = -(2**62)
"""A watermark that has reached nothing."""
FEW = 200_000
"""Coordinates that fit every task's memory: some ten megabytes."""
Only = Callable[[DataFrame], DataFrame]
"""Leaves some of an output's located rows out."""


def compared(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    bounds: Bounds | None = None,
    before: Frontier | None = None,
    only: Only | None = None,
) -> Found:
    """Compare what two generations wrote for the source offsets of a horizon.

    Cheap first: fingerprints of all rows are joined, and the content is read of those alone that they leave in doubt.

    Args:
        spark: The session.
        settings: The installation.
        live: The one side.
        candidate: The other.
        horizon: Source offsets that both must hold.
        bounds: For pipelines with state, which of their results can be compared.
        before: How far a comparison up to the horizon's floor came; None to read both outputs whole.
        only: Of pipelines without state, which of the located rows are looked at.
    """
    if bounds is not None:
        found = _compared_keyed(spark, settings, live, candidate, horizon, bounds, before)
    else:
        found = _compared_rows(spark, settings, live, candidate, horizon, before, only)
    # Of a part of both outputs nobody said how many there are.
    return found if before is not None else findings.counted(found, candidate.declared.row_rules)


def _compared_rows(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    before: Frontier | None,
    only: Only | None,
) -> Found:
    unread = None if before is None else before.unread
    read = [adapter.read(spark, settings, generation, unread) for generation in (live, candidate)]
    if only is not None:
        read = [replace(output, rows=only(output.rows)) for output in read]
    if candidate.state == lifecycle.STAGING:
        # What lies outside a repair's range is no business of it, not open.
        rows = [output.rows.where(compare.comparable(horizon)) for output in read]
        return compared_rows(rows[0], rows[1], _sides(live, candidate), horizon)
    again = before is not None and bool(before.ends)
    if again:
        # Little, and looked at more than once: it is fetched once.
        read = [replace(output, rows=output.rows.persist(StorageLevel.DISK_ONLY)) for output in read]
    try:
        touched = sum(_touched(output, before) for output in read) if before is not None and again else 0
        found = compared_rows(read[0].rows, read[1].rows, _sides(live, candidate), horizon)
    finally:
        for output in read if again else ():
            output.rows.unpersist()
    left, right = (output.unread(beyond) for output, beyond in zip(read, found.beyond, strict=True))
    ends = {**read[0].ends, **read[1].ends}
    return replace(found, unread={**left, **right}, ends=ends, touched=touched)


def _touched(output: adapter.Output, before: Frontier) -> int:
    """Return how many rows came since the comparison before that are of source offsets which it judged."""
    kinds = zip((outputs.ROW, outputs.DEAD), output.topics, strict=True)
    return sum(_touched_of(topic, output.rows.where(F.col("kind") == kind), before) for kind, topic in kinds)


def _touched_of(topic: Topic, located: DataFrame, before: Frontier) -> int:
    judged = compare.comparable({p: OffsetRange(0, end) for p, end in before.ceiling.items()})
    return located.where(adapter.newer(topic, before.ends) & judged).count()


def _compared_keyed(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    bounds: Bounds,
    before: Frontier | None,
) -> Found:
    """Compare results by key, and dead letters, which are of one record each, by its coordinate."""
    sides = _sides(live, candidate)
    unread = None if before is None else before.unread
    dead = [adapter.read_dead(spark, settings, generation, unread) for generation in (live, candidate)]
    # A repair makes results anew; what was rejected then is rejected still.
    rows = [letters if bounds.touches is None else letters.limit(0) for _, letters in dead]
    letters = compared_rows(rows[0], rows[1], sides, horizon)
    results = Keyed(spark, settings, live, candidate, sides, bounds, before)
    try:
        sample = tuple(samples.shown(row) for row in results.sample(samples.MOST))
    finally:
        results.close()
    counts = {name: results.counts.get(name, 0) + letters.counts.get(name, 0) for name in results.counts}
    # One open dead letter is not an open result.
    counts[compare.OPEN] = results.counts[compare.OPEN]
    counts["dead_letters"] = letters.counts["dead_letters"]
    unread_dead = {
        topic.id: {p: min(end, beyond.get(outputs.place(p, 1), end)) for p, end in topic.latest.items()}
        for (topic, _), beyond in zip(dead, letters.beyond, strict=True)
    }
    late = 0 if before is None or not before.ends else sum(_touched_of(*one, before) for one in dead)
    return Found(
        counts,
        findings.together(letters.fields, results.fields),
        (*letters.sample, *sample)[: samples.MOST],
        unread={**unread_dead, **results.unread},
        ends={**adapter.ends_of(topic for topic, _ in dead), **results.ends},
        touched=results.touched + late,
    )


def compared_rows(live: DataFrame, candidate: DataFrame, sides: compare.Sides, horizon: Ranges) -> Found:
    """Compare the located rows (`outputs.located`) of two outputs over a horizon."""
    both = [compare.from_floor(rows, horizon) for rows in (live, candidate)]
    pairs = compare.paired(outputs.fingerprints(both[0]), outputs.fingerprints(both[1]), horizon)
    pairs = pairs.persist(StorageLevel.DISK_ONLY)
    try:
        counts, doubtful = _totals(compare.totals(pairs))
        beyond = (_beyond(pairs, "l"), _beyond(pairs, "c")) if counts[compare.OPEN] else ({}, {})
        fields: dict[str, dict[str, int]] = {}
        sample: tuple[Mapping[str, Any], ...] = ()
        if doubtful:
            suspects = pairs.where(pairs["state"] == compare.SUSPECT)
            few = doubtful <= FEW
            unique = [outputs.deduplicated(compare.only(rows, suspects, few)) for rows in both]
            rows = compare.classified(unique[0], unique[1], sides).persist(StorageLevel.DISK_ONLY)
            fields = _classes(compare.counts(rows, sides), counts)
            sample = samples.first(rows)
            rows.unpersist()
    finally:
        pairs.unpersist()
    return Found(counts, fields, sample, beyond)


def bounds_of(
    settings: Settings,
    live: Generation,
    candidate: Generation,
    closed_after: int = NOTHING,
    touches: tuple[int, int] | None = None,
) -> Bounds | None:
    """Return which results of two jobs can be compared by now, or None for pipelines without state.

    Args:
        settings: The installation.
        live: The one job.
        candidate: The other.
        closed_after: Up to which watermark they were compared before.
        touches: For a repair, the event time whose results it made: it has no batches of its own.
    """
    if not candidate.declared.stateful:
        return None
    with reading(settings.registry_url) as connection:
        jobs = (live, candidate) if touches is None else (live,)
        newest = [progress.newest(connection, job.job_id) for job in jobs]
    whole = [job.trusted_from for job in (live, candidate)]
    trusted = max(NOTHING if instant is None else int(instant) for instant in whole)
    closed = min(NOTHING if batch is None else batch.closing_watermark for batch in newest)
    return Bounds(trusted, closed_after, closed, touches)


def _sides(live: Generation, candidate: Generation) -> compare.Sides:
    schemas = [parsing.declared(generation.output_schema) for generation in (live, candidate)]
    pipeline = candidate.declared
    return compare.Sides(schemas[0], schemas[1], pipeline.expected, pipeline.rules, pipeline.row_rules)


def _totals(by_state: DataFrame) -> tuple[dict[str, int], int]:
    """Return the counts of the pairs that need no second look, and how many do need one."""
    # One row a state.
    found = {row["state"]: row for row in by_state.collect()}
    judged = [row for state, row in found.items() if state != compare.OPEN]
    counts = dict.fromkeys((compare.EQUAL, compare.EXPECTED, *compare.DIFFERENCES), 0)
    counts[compare.OPEN] = found[compare.OPEN]["rows"] if compare.OPEN in found else 0
    counts[compare.EQUAL] = found[compare.EQUAL]["rows"] if compare.EQUAL in found else 0
    counts["rows"] = sum(row["rows"] for row in judged)
    counts["repeated"] = sum(row["repeated"] for row in judged)
    counts["repeated_differently"] = sum(row["varied"] for row in judged)
    counts["dead_letters"] = sum(row["dead"] for row in judged)
    return counts, found[compare.SUSPECT]["rows"] if compare.SUSPECT in found else 0


def _beyond(pairs: DataFrame, side: str) -> dict[int, int]:
    """Return by place the first offset at which a row beyond the ceiling may stand."""
    first: dict[int, int] = {}
    # One row a span, and a span is one place unless copies of a row went to several.
    for row in compare.beyond(pairs, side).collect():
        for place in range(row["place"], row["last_place"] + 1):
            first[place] = min(row["first"], first.get(place, row["first"]))
    return first


def _classes(by_class: DataFrame, counts: dict[str, int]) -> dict[str, dict[str, int]]:
    """Add the classes of the suspects to the counts, and return their differing fields by class."""
    # One row a class.
    found = by_class.collect()
    for row in found:
        counts[row["class"]] += row["rows"]
    return {row["class"]: dict(row["fields"]) for row in found if row["fields"]}
