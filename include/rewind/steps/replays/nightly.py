"""A nightly replay: does the live job still give the answers that it gave?

A stretch of history is replayed from the mirror through the live job's frozen code and compared with what live wrote.
A difference is a drift: the answers depend on more than the records, on a clock, an order or something outside.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from rewind.adapters import mirror as table
from rewind.adapters import outputs
from rewind.adapters.mirror_reader import read_state
from rewind.adapters.session import session_of
from rewind.core import lifecycle, names
from rewind.core import nights as rules
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.horizon import Frontier, horizon
from rewind.core.model import Generation, MirrorState
from rewind.core.nights import Night, Sample
from rewind.core.offsets import Ranges, Vector, all_told, ends, lower, starts, total
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.registry import generations, nightly_replays, progress
from rewind.registry.database import reading, writing
from rewind.registry.nightly_replays import Replayed
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.planner_reads import Lifecycle
from rewind.steps.compare import comparison, findings
from rewind.steps.generation.logic import load_logic
from rewind.steps.replays import night_report, replay
from rewind.steps.replays.night_line import Line
from rewind.steps.replays.night_report import Answer
from rewind.steps.streaming.stream import checked_topic
from rewind.transforms.comparing.compare import OPEN

log = logging.getLogger(__name__)

SANE = timedelta(days=1)
"""How far ahead the clock of a record may be and still be believed."""
Interval = tuple[datetime, datetime]


@dataclass(frozen=True)
class Asked:
    """What a run asks for.

    Attributes:
        interval: The night's, in UTC.
        zone: Time zone of its date.
        sample: Which records.
        run_id: The run.
        missed: Intervals before it, in order, of which no run came.
    """

    interval: Interval
    zone: str
    sample: Sample
    run_id: str
    missed: Sequence[Interval] = ()


@dataclass(frozen=True)
class _Work:
    """What one attempt is about."""

    settings: Settings
    live: Generation
    pipeline: Pipeline
    state: MirrorState
    night: Night
    recorded: Replayed
    line: Line


def run(settings: Settings, given: Mapping[str, str]) -> None:
    """Replay a night of a live job, compare, and record what was found; a drift is an answer, not an error.

    Args:
        settings: The installation.
        given: Arguments of the main, as text.

    Raises:
        RefusedError: The night cannot be replayed as asked.
        IntegrityError: The mirror lacks records, or code of ours was not loaded from the frozen bundle.
    """
    asked, job_id = _asked(given), given["job_id"]
    with reading(settings.registry_url) as connection:
        live = generations.read(connection, job_id)
    pipeline = live.declared
    load_logic(pipeline)
    bundle.check_origin(sys.modules, supervise.frozen_bundle(settings, job_id, live.bundle).folder)
    replayed(session_of(live, pipeline), settings, live, asked)


def _asked(given: Mapping[str, str]) -> Asked:
    read: dict[str, Any] = {}
    for name in ("sample", "missed"):
        try:
            read[name] = json.loads(given[name])
        except ValueError:
            raise RefusedError(name, f"{given[name]!r} is not JSON", f"As in {rules.EXAMPLE}") from None
    missed = [rules.interval(*pair) for pair in read["missed"]]
    sample = rules.sample_of(read["sample"])
    return Asked(rules.interval(given["start"], given["end"]), given["zone"], sample, given["run_id"], missed)


def replayed(spark: SparkSession, settings: Settings, live: Generation, asked: Asked) -> Replayed:
    """Replay a night in a session that has the live job's code, and return what was recorded; see `run`."""
    pipeline = live.declared
    topic = checked_topic(settings, pipeline, live)
    rules.check_sample(asked.sample, pipeline, topic.latest)
    state = read_state(settings, topic, pipeline.transactional)
    if state is None:
        raise RefusedError("source.topic", f"{topic.name!r} has no mirror", f"Start it with mirror_{topic.name}")
    night = Night(pipeline.name, *asked.interval, rules.label_of(asked.interval[0], asked.zone), asked.sample)
    with Guard(settings, names.night_owner(pipeline.name)) as guard:
        line = Line(settings, live, night)
        _clear(settings, pipeline.name, line.kept)
        recorded = _begun(spark, settings, live, state, night, asked)
        work, answer = _Work(settings, live, pipeline, state, night, recorded, line), Answer()
        try:
            _answer(spark, work, guard, answer)
        except Exception as error:
            answer.state, answer.reason = rules.ERROR, f"{type(error).__name__}: {error}"
            raise
        finally:
            told = night_report.store(settings, live, recorded, answer)
            _clear(settings, pipeline.name, line.leave(recorded, answer))
    return told


def _begun(
    spark: SparkSession, settings: Settings, live: Generation, state: MirrorState, night: Night, asked: Asked
) -> Replayed:
    """Record the nights that were missed and that this one begins, each with its offsets."""
    missed = [replace(night, start=s, end=e, label=rules.label_of(s, asked.zone)) for s, e in asked.missed]
    wanted = [*missed, night]
    instants = sorted({instant for each in wanted for instant in (each.start, each.end)})
    path = table.table_path(settings, live.source_topic)
    found = table.first_offsets(spark, path, live.topic_id, instants, datetime.now(UTC) + SANE)
    reached = state.end()
    at = {instant: {**reached, **offsets} for instant, offsets in zip(instants, found, strict=True)}
    with side_effect("night.begin"), writing(settings.registry_url) as connection:
        replayable = lower(progress.position(connection, live.job_id, live.handoff), state.end())
        for each in missed:
            known = nightly_replays.known(connection, night.pipeline)
            ranges = rules.range_of(each, known, at[each.start], at[each.end], replayable)
            made = nightly_replays.miss(
                connection, each, ranges, asked.run_id, "no run came: the DAG was paused, or Airflow down"
            )
            log.warning("%s was not replayed: %s", made.label, all_told(made.ranges) or "no offsets")
        known = nightly_replays.known(connection, night.pipeline)
        ranges = rules.range_of(night, known, at[night.start], at[night.end], replayable)
        begun = nightly_replays.begin(connection, night, ranges, asked.run_id, live.job_id)
    log.info(
        "%s: nightly replay of %s, attempt %d, %s: %s",
        begun.replay_id,
        begun.label,
        begun.attempt,
        night.sample.told(),
        all_told(begun.ranges) or "no offsets",
    )
    return begun


def _answer(spark: SparkSession, work: _Work, guard: Guard, answer: Answer) -> None:
    settings, live, recorded = work.settings, work.live, work.recorded
    with reading(settings.registry_url) as connection:
        before = nightly_replays.frontier_before(connection, work.night, live.job_id)
        position = progress.position(connection, live.job_id, live.handoff)
    known = before or Frontier({})
    whole = outputs.first_whole(spark, settings, live, known.unread)
    asked = recorded.asked
    answer.compared = horizon(starts(asked), live.start, whole, ends(asked), position)
    answer.frontier = before
    if not total(answer.compared):
        answer.state, answer.reason = _nothing(live, asked, whole)
        return
    made = replay.prepared(
        spark, live, recorded.replay_id, answer.compared, work.state, Lifecycle(settings.registry_url)
    )
    replay.make(spark, settings, made)
    work.line.take_up(spark, made, before, answer.compared)
    replay.run(spark, settings, made, answer.compared, work.state.version, recorded.sample, guard)
    bounds = comparison.bounds_of(settings, live, made, comparison.NOTHING if before is None else before.closed)
    only = replay.only(spark, settings, made, answer.compared, work.state.version, recorded.sample)
    answer.found = comparison.compared(spark, settings, live, made, answer.compared, bounds, known, only)
    answer.state, answer.reason = _judged(answer, work.pipeline, total(asked))
    if bounds is None:
        # What live wrote of later records is the business of later nights.
        answer.found = replace(answer.found, counts={n: c for n, c in answer.found.counts.items() if n != OPEN})
    closed = 0 if bounds is None else bounds.closed_by
    answer.frontier = Frontier(ends(recorded.ranges), answer.found.unread, closed, answer.found.ends)


def _nothing(live: Generation, asked: Ranges, whole: Vector) -> tuple[str, str]:
    if not total(asked):
        return rules.NOTHING, "no record came"
    begins = {p: max(offset, whole.get(p, 0)) for p, offset in live.start.items()}
    return (
        rules.NOT_REPLAYED,
        f"nothing of it stands in the output of {live.job_id}, which is complete from {begins} on",
    )


def _judged(answer: Answer, pipeline: Pipeline, asked: int) -> tuple[str, str]:
    """Return the state of a night that was compared, and why it is not consistent."""
    compared = total(answer.compared)
    verdict, reason = findings.judge(answer.found, compared, pipeline.late_share)
    if volatile := findings.likely_volatile(answer.found):
        reason += f"; {', '.join(volatile)} differs in all rows: does it depend on a clock?"
    if answer.found.touched:
        reason += f"{'; ' if reason else ''}{answer.found.touched} rows of earlier replays were written since, or again"
    if compared < asked:
        reason += f"{'; ' if reason else ''}{asked - compared} older offsets are not in the output of the live job"
    # Nothing on both sides is no sign of health; nobody is to be woken for it either.
    states = {lifecycle.PASS: rules.CONSISTENT, lifecycle.FAIL: rules.DRIFTED, lifecycle.ERROR: rules.NOTHING}
    return states[verdict], reason


def _clear(settings: Settings, pipeline: str, kept: str | None) -> None:
    """Delete what all nights of a pipeline but one wrote, that of any that died too: only one runs at a time."""
    with reading(settings.registry_url) as connection:
        left = nightly_replays.with_scratch(connection, pipeline)
    for replay_id in (each for each in left if each != kept):
        replay.clear(settings, replay_id)
