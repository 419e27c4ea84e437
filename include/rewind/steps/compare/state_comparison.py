"""Compare what two jobs keep, not only what they wrote: a fault in an open window shows in no output yet."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters import checkpoint, kafka, state_store
from rewind.adapters.session import beside
from rewind.adapters.state_store import Operator
from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.core.errors import RetryError
from rewind.core.model import Batch, Generation
from rewind.core.offsets import Ranges, between, ends, higher, lower, starts, total
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import reading
from rewind.runtime.drivers import supervise
from rewind.steps.compare import lateness, state_of_records
from rewind.transforms.comparing import states
from rewind.transforms.comparing.compare import EQUAL, LATE

SAMPLE = 20
"""Differing keys that are kept with both values."""

GONE = "CANNOT_LOAD_STATE_STORE"
"""What Spark says of a state whose files it does not find."""

ANOTHER = "the candidate keeps another state than live"
"""Why states cannot be compared, as the plan told: a change of the code, not a lack of what was to be looked at."""

Records = Callable[[SparkSession, Ranges], DataFrame]
"""Reads source records at some offsets."""


@dataclass(frozen=True)
class StateFound:
    """What a comparison of states counted.

    Attributes:
        counts: Keys by class (`states.CLASSES`), by operator.
        sample: The first differing keys with both values, as texts.
        batches: The batch of each job after which its state was read.
        not_compared: Why the states were not compared; empty when they were.
    """

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sample: tuple[Mapping[str, Any], ...] = ()
    batches: Mapping[str, int] = field(default_factory=dict)
    not_compared: str = ""

    def differing(self) -> int:
        """Return how many keys differ."""
        return sum(map(_differing, self.counts.values()))

    def absent(self) -> bool:
        """Return whether there was no key to look at, though both jobs keep the same state."""
        keys = sum(sum(counted.values()) for counted in self.counts.values())
        return not keys and self.not_compared not in ("", ANOTHER)


def compared(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    trusted_from: int,
    records: Records | None = None,
) -> StateFound:
    """Compare the states of two jobs, key by key, while both run on.

    They have hardly ever read up to the same offset. So the keys of records that only one of them has read are found
    by running the logic on just those records, once, with a state of its own; all other keys have had equal input.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        trusted_from: From when on results of both are whole, in milliseconds since 1970.
        records: Reads source records; from Kafka unless said otherwise.

    Raises:
        RetryError: A state that was to be read is gone by now, or the mirror lags.
    """
    pipeline = candidate.declared
    if live.kept_state != candidate.kept_state:
        return StateFound(not_compared=ANOTHER)
    jobs = {job.job_id: _last(spark, settings, job) for job in (live, candidate)}
    idle = [job_id for job_id, batch in jobs.items() if batch is None]
    if idle:
        return StateFound(not_compared=f"{', '.join(idle)} has no committed batch yet")
    scratch = supervise.generation_folder(settings, candidate.job_id) / "state-compared"
    read = records or _from_kafka(settings, pipeline)
    try:
        operators = state_store.operators(spark, _checkpoint(settings, live))
        session = beside(spark, pipeline, candidate.state_partitions, operators[0].partitions)
        work = _Work(session, settings, live, candidate, pipeline, scratch, operators, _present(jobs))
        # What a crash leaves lies in the candidate's folder: the next comparison starts again, and it is collected.
        with side_effect("state.compare"):
            return _found(work, trusted_from, read)
    except (PySparkException, Py4JJavaError, FileNotFoundError) as error:
        if not isinstance(error, FileNotFoundError) and GONE not in str(error):
            raise
        told = f"a state of {' or '.join(jobs)} is gone that was there a moment ago: run validate again"
        raise RetryError(told) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def gated(verdict: str, reason: str, found: StateFound, pipeline: Pipeline) -> tuple[str, str]:
    """Return a verdict and its reason, with what the states add: keys that differ make a pass a fail.

    States that were not there make it an error; where they were, and no key of them could be compared, it is told.
    Where columns are expected to change, or may be equal without being the same, what leads to them may differ too:
    then the difference is told alone.
    """
    if found.not_compared:
        told = f"the states were not compared: {found.not_compared}"
        again = "; run validate again once both have committed batches" if found.absent() else ""
        verdict = lifecycle.ERROR if found.absent() else verdict
        return verdict, "; ".join([*([reason] if reason else []), f"{told}{again}"])
    if not found.differing() or pipeline.expected or pipeline.rules or verdict == lifecycle.ERROR:
        return verdict, reason
    told = f"{found.differing()} keys differ in the state"
    return lifecycle.FAIL, "; ".join([*([reason] if reason else []), told])


@dataclass(frozen=True)
class _Work:
    """One comparison: a session for small queries with state, both jobs, and the batches whose states are read."""

    spark: SparkSession
    settings: Settings
    live: Generation
    candidate: Generation
    pipeline: Pipeline
    scratch: Path
    operators: Sequence[Operator]
    batches: Mapping[str, Batch]

    @property
    def both(self) -> tuple[Batch, Batch]:
        """The batches of live and of the candidate."""
        return self.batches[self.live.job_id], self.batches[self.candidate.job_id]


def _found(work: _Work, trusted_from: int, records: Records) -> StateFound:
    closed_by = max(batch.closing_watermark for batch in work.both)
    views = [_view(work, job, batch) for job, batch in zip((work.live, work.candidate), work.both, strict=True)]
    ahead = _touched(work, "ahead", _only_one_read(work, records))
    pairs = {operator: _pairs(work, views, operator).persist(StorageLevel.DISK_ONLY) for operator in work.operators}

    def told(operator: Operator, late: str | None) -> DataFrame:
        touched = [_read(work, view, operator) for view in (ahead, late)]
        return states.classed(pairs[operator], closed_by, trusted_from, *touched)

    sample: list[Mapping[str, Any]] = []
    try:
        counts = {operator: _counts(told(operator, None)) for operator in work.operators}
        if differing := [operator for operator in work.operators if _differing(counts[operator])]:
            # Only now: what each job left out as late is told by the mirror, which takes its time.
            late = _touched(work, "late", _late_in_one(work, closed_by))
            for operator in differing:
                counts[operator] = _counts(told(operator, late))
                sample += _sample(told(operator, late), operator)
    finally:
        for kept in pairs.values():
            kept.unpersist()
    batches = {job_id: batch.batch for job_id, batch in work.batches.items()}
    by_name = {str(operator): counted for operator, counted in counts.items()}
    return StateFound(by_name, tuple(sample[:SAMPLE]), batches, _untold(counts.values()))


def _untold(counts: Iterable[Mapping[str, int]]) -> str:
    compared = sum(of[EQUAL] + of[LATE] + _differing(of) for of in counts)
    return "" if compared else "no key has had equal input in both jobs and is open in both"


def _pairs(work: _Work, views: Sequence[str], operator: Operator) -> DataFrame:
    read = [
        states.timed(state_store.read(work.spark, view, batch.batch, operator), work.pipeline.horizon_milliseconds or 0)
        for view, batch in zip(views, work.both, strict=True)
    ]
    return states.paired(read[0], read[1])


def _view(work: _Work, job: Generation, batch: Batch) -> str:
    partitions = work.operators[0].partitions
    return state_store.view(_checkpoint(work.settings, job), batch.batch, partitions, work.scratch / job.job_id)


def _only_one_read(work: _Work, records: Records) -> DataFrame | None:
    ahead = between(*(bound(*(batch.end for batch in work.both)) for bound in (lower, higher)))
    return records(work.spark, ahead) if total(ahead) else None


def _late_in_one(work: _Work, closed_by: int) -> DataFrame | None:
    horizon = work.pipeline.horizon_milliseconds
    since = 0 if horizon is None else closed_by - horizon
    rows = lateness.left_out_by_one(work.spark, work.settings, work.live, work.candidate, work.pipeline, since)
    return None if rows.isEmpty() else rows


def _touched(work: _Work, name: str, records: DataFrame | None) -> str | None:
    """Return the view of the state that a few records make by themselves: its keys are those that they touch."""
    if records is None:
        return None
    return state_of_records.made(work.spark, work.pipeline, records, work.operators[0].partitions, work.scratch / name)


def _read(work: _Work, viewed: str | None, operator: Operator) -> DataFrame | None:
    return None if viewed is None else state_store.read(work.spark, viewed, state_of_records.FIRST, operator)


def _counts(told: DataFrame) -> dict[str, int]:
    # One row a class.
    found = {row["class"]: row["count"] for row in told.groupBy("class").count().collect()}
    return {name: found.get(name, 0) for name in states.CLASSES}


def _differing(counted: Mapping[str, int]) -> int:
    return sum(counted.get(name, 0) for name in states.DIFFERENCES)


def _sample(told: DataFrame, operator: Operator) -> list[Mapping[str, Any]]:
    # Fields of a value may share a name: as text, in their order.
    texts = F.to_json("key").alias("key"), *(F.col(side).cast("string").alias(side) for side in ("l", "c"))
    rows = told.where(F.col("class").isin(*states.DIFFERENCES)).select("class", *texts).orderBy("key").limit(SAMPLE)
    return [
        {"operator": str(operator), "class": r["class"], "key": r["key"], "live": r["l"], "candidate": r["c"]}
        for r in rows.collect()
    ]


def _last(spark: SparkSession, settings: Settings, job: Generation) -> Batch | None:
    """Return the newest batch of a job that is recorded and whose state is committed."""
    committed = checkpoint.last_committed(spark, _checkpoint(settings, job))
    with reading(settings.registry_url) as connection:
        recent = progress.recent(connection, job.job_id, 2)
    return next((batch for batch in recent if committed is not None and batch.batch <= committed), None)


def _present(jobs: Mapping[str, Batch | None]) -> dict[str, Batch]:
    return {job_id: batch for job_id, batch in jobs.items() if batch is not None}


def _checkpoint(settings: Settings, job: Generation) -> str:
    return str(supervise.checkpoint_folder(settings, job.job_id))


def _from_kafka(settings: Settings, pipeline: Pipeline) -> Records:
    def read(spark: SparkSession, ranges: Ranges) -> DataFrame:
        topic, first, last = pipeline.source_topic, starts(ranges), ends(ranges)
        return kafka.as_records(kafka.read_range(spark, settings, topic, first, last, pipeline.isolation))

    return read
