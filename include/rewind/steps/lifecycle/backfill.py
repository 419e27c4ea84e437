"""Feed a candidate its history in waves of chunks, until it is within the gate of Kafka's end or gains no more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from rewind.adapters.mirror_reader import read_state
from rewind.adapters.session import session_of
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation, MirrorState, Topic, held_back
from rewind.core.offsets import OffsetRange, Ranges, Vector, behind, between, reached, to_spark_json, total
from rewind.core.pipeline import Pipeline
from rewind.core.planning import chunks
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import chunk_log, generations, leases, progress, rewinds
from rewind.registry.chunk_log import Chunk
from rewind.registry.database import reading, vector_from_json, vector_to_json, writing
from rewind.runtime import rights
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.steps.base.throttle import Throttle
from rewind.steps.feed import backfill_summary, window_repair
from rewind.steps.feed.chunk import Chunks
from rewind.steps.feed.feeding import Feeding
from rewind.steps.feed.history import History

KEPT_BATCHES = 100
"""Batches whose state a checkpoint keeps (Spark's `spark.sql.streaming.minBatchesToRetain`)."""
MIRROR_PATIENCE_SECONDS = 300.0
"""How long the mirror may stand still before the backfill gives up waiting for it."""

Cut = Callable[[Ranges, int], list[Ranges]]
"""Cuts a wave's offsets, of a version of the mirror, into chunks."""
Run = Callable[[Sequence[Chunk], int, Mapping[int, Sequence[OffsetRange]], Throttle], None]
"""Runs chunks of a version of the mirror, some gaps accepted."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What a backfill is about."""

    rewind_id: str
    plan: Plan
    pipeline: Pipeline
    generation: Generation


def run(settings: Settings, rewind_id: str) -> None:
    """Backfill the candidate of a rewind and fix its handoff; resumed where it stopped.

    Raises:
        IntegrityError: The mirror contradicts its own records, or a version that is needed is gone.
        RefusedError: The rewind is not active, or the handoff lies below Kafka's earliest offset.
        RetryError: The mirror stands still.
    """
    recording.recorded(settings, rewind_id, "backfill", lambda _: _backfill(settings, rewind_id))


def _backfill(settings: Settings, rewind_id: str) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        work = Work(rewind_id, plan, plan.declared, generations.read(connection, plan.job_id))
    if not plan.shape.reads_history:
        return _fix_handoff(settings, work, plan.start, _topic(settings, work))
    if work.generation.handoff is not None:
        log.info("%s has its handoff already: nothing to do", plan.job_id)
        return backfill_summary.evidence(settings, work.rewind_id, work.plan)
    rights.before_a_backfill(Broker(settings), work.pipeline, work.generation)
    spark = session_of(work.generation, work.pipeline)
    history = History(spark, settings, work.pipeline, work.generation.topic_id)
    with Guard(settings, plan.job_id, "backfill") as guard:
        if plan.touches is not None:
            return _windows(settings, work, spark, guard, history, plan.touches)
        if work.pipeline.stateful:
            feeding = Feeding(spark, settings, work.generation, work.pipeline, guard, rewind_id)
            return _waves(settings, work, guard, _checked(history, feeding.cut), feeding.run)
        made = Chunks(spark, settings, work.generation, work.pipeline, guard)
        cut = _checked(history, lambda ranges, _: chunks.cut(ranges, work.pipeline.chunk_records))
        return _waves(settings, work, guard, cut, _one_by_one(settings, work, made))


def _checked(history: History, cut: Cut) -> Cut:
    """Return what cuts a wave when the whole version of the mirror that it reads is there: it is not begun in vain."""

    def checked(ranges: Ranges, version: int) -> list[Ranges]:
        history.check(version)
        return cut(ranges, version)

    return checked


def _windows(
    settings: Settings, work: Work, spark: SparkSession, guard: Guard, history: History, touches: tuple[int, int]
) -> dict[str, Any]:
    """Make the touched results of a pipeline with state anew: one chunk, one batch."""
    ranges = between(work.plan.start, work.plan.end)
    with reading(settings.registry_url) as connection:
        newest = progress.newest(connection, work.plan.live_job_id)
    seen = {"version": work.plan.mirror_version, "batch": newest.batch if newest else 0}
    with side_effect("wave.fix"), writing(settings.registry_url) as connection:
        fixed = rewinds.fix(connection, work.rewind_id, "repair.seen", seen)
        chunk_log.add_wave(connection, work.rewind_id, 0, [ranges])
        chunk_log.begin(connection, work.rewind_id, 0)
    history.check(fixed["version"])
    rows, found, repeats = history.read(ranges, fixed["version"], work.plan.accepted_gaps)
    window_repair.write(spark, settings, work.generation, work.pipeline, guard, rows, touches, fixed["batch"], ranges)
    with side_effect("chunk.finish"), writing(settings.registry_url) as connection:
        chunk_log.finish(connection, work.rewind_id, 0, found, repeats)
    return _fix_handoff(settings, work, work.plan.end, _topic(settings, work))


def _waves(settings: Settings, work: Work, guard: Guard, cut: Cut, run: Run) -> dict[str, Any]:
    done, wave = dict(work.plan.start), 0
    while True:
        topic = _topic(settings, work)
        version, end = _wave(settings, work, wave, done, topic)
        ranges = between(done, end)
        log.info("wave %d: %d offsets of mirror version %d", wave, total(ranges), version)
        todo = cut_wave(settings, work, guard, cut, wave, version, ranges)
        throttle = Throttle(_controls(settings, work.rewind_id), time.monotonic, time.sleep)
        run(todo, version, work.plan.accepted_gaps, throttle)
        covered = behind(done, end)
        done, wave = {**done, **end}, wave + 1
        topic = _topic(settings, work)
        if _close_enough(work, done, covered, topic):
            return _fix_handoff(settings, work, done, topic)


def _close_enough(work: Work, done: Vector, covered: int, topic: Topic) -> bool:
    if work.plan.shape.bounded:
        return reached(done, work.plan.end)
    left = behind(done, topic.latest)
    # A wave costs seconds however small it is: when as much came in meanwhile as half of what it covered, the
    # next ones would not come closer, and the stream does the rest sooner.
    return left <= work.pipeline.lag_gate or left > covered / 2


def _wave(settings: Settings, work: Work, wave: int, done: Vector, topic: Topic) -> tuple[int, Vector]:
    """Return the mirror version that a wave reads and where it ends, fixed when it first begins."""
    name = f"wave.{wave}"
    with reading(settings.registry_url) as connection:
        fixed = rewinds.fact(connection, work.rewind_id, name)
    if fixed is None:
        state = _advanced(settings, work, done, topic) if wave else _state(settings, work, topic)
        end = _wave_end(settings, work, state, done, topic)
        value = {"version": state.version, "end": vector_to_json(end)}
        with side_effect("wave.fix"), writing(settings.registry_url) as connection:
            fixed = rewinds.fix(connection, work.rewind_id, name, value)
    return fixed["version"], vector_from_json(fixed["end"])


def _wave_end(settings: Settings, work: Work, state: MirrorState, done: Vector, topic: Topic) -> Vector:
    reach = {p: state.end().get(p, earliest) for p, earliest in topic.earliest.items()}
    if work.plan.shape.bounded:
        reach = {p: min(reach[p], work.plan.end[p]) for p in work.plan.end}
    elif work.pipeline.stateful:
        reach = {**reach, **_batch_end(settings, work, reach)}
    return {p: max(o, done.get(p, 0)) for p, o in reach.items()}


def _batch_end(settings: Settings, work: Work, reach: Vector) -> Vector:
    """Return the newest end of a live batch that the mirror has reached: there both states can be compared.

    Live's checkpoint keeps the state of its last batches alone. Where none of them will do, nothing is compared there.
    """
    with reading(settings.registry_url) as connection:
        recent = progress.recent(connection, work.plan.live_job_id, KEPT_BATCHES)
    return next((batch.end for batch in recent if reached(reach, batch.end)), {})


def _advanced(settings: Settings, work: Work, done: Vector, topic: Topic) -> MirrorState:
    """Wait until the mirror has read on, and return its state."""
    deadline = time.monotonic() + MIRROR_PATIENCE_SECONDS
    while True:
        state = _state(settings, work, topic)
        if behind(done, state.end()):
            return state
        if time.monotonic() > deadline:
            at = to_spark_json(topic.name, state.end())
            held = "".join(f"; {line}" for line in held_back(topic.held()))
            raise RetryError(f"the mirror of {topic.name} stands still at {at}: is its stream running?{held}")
        time.sleep(1)


def cut_wave(
    settings: Settings, work: Work, guard: Guard, cut: Cut, wave: int, version: int, ranges: Ranges
) -> list[Chunk]:
    """Cut a wave, unless an attempt before this one did, and return its chunks that are not done.

    Raises:
        IntegrityError: The version of the mirror is no longer whole.
        LeaseLostError: Another driver took the candidate's lease while this one cut.
    """
    # Before the transaction: it lists the mirror's files, or reads the range, while everybody else wants to write.
    made = cut(ranges, version)
    with side_effect("wave.cut"), writing(settings.registry_url) as connection:
        leases.renew(connection, work.plan.job_id, guard.token)
        chunk_log.add_wave(connection, work.rewind_id, wave, made)
        return [c for c in chunk_log.read(connection, work.rewind_id) if c.wave == wave and c.state != "done"]


def _one_by_one(settings: Settings, work: Work, made: Chunks) -> Run:
    """Return what runs the chunks of a pipeline without state, each for itself."""

    def run(
        todo: Sequence[Chunk], version: int, accepted: Mapping[int, Sequence[OffsetRange]], throttle: Throttle
    ) -> None:
        for chunk in todo:
            throttle.before()
            with side_effect("chunk.start"), writing(settings.registry_url) as connection:
                chunk_log.begin(connection, work.rewind_id, chunk.number)
            rows, repeats = made.run(chunk.number, chunk.ranges, version, accepted)
            with side_effect("chunk.finish"), writing(settings.registry_url) as connection:
                chunk_log.finish(connection, work.rewind_id, chunk.number, rows, repeats)
            log.info("chunk %d done: %d records, %d repeats", chunk.number, rows, repeats)
            throttle.after(rows)

    return run


def _fix_handoff(settings: Settings, work: Work, handoff: Vector, topic: Topic) -> dict[str, Any]:
    gone = {p: (o, topic.earliest[p]) for p, o in handoff.items() if o < topic.earliest.get(p, 0)}
    if gone and work.plan.shape.takes_over:
        cure = "Kafka has dropped records that the backfill did not reach: lengthen its retention, then run again"
        raise RefusedError("handoff", f"below Kafka's earliest (handoff, earliest per partition: {gone})", cure)
    with side_effect("handoff.fix"), writing(settings.registry_url) as connection:
        fixed = generations.set_handoff(connection, work.plan.job_id, handoff)
    log.info("handoff of %s: %s", work.plan.job_id, to_spark_json(work.plan.topic, fixed))
    return backfill_summary.evidence(settings, work.rewind_id, work.plan)


def _controls(settings: Settings, rewind_id: str) -> Callable[[], tuple[bool, int | None]]:
    def read() -> tuple[bool, int | None]:
        with reading(settings.registry_url) as connection:
            return rewinds.controls(connection, rewind_id)

    return read


def _topic(settings: Settings, work: Work) -> Topic:
    # As the mirror reads it: beyond an open transaction it cannot come, whatever the stream may read.
    found = Broker(settings).topic(work.plan.topic)
    if found is None or found.id != work.plan.topic_id:
        raise RefusedError("source.topic", f"{work.plan.topic} was deleted or recreated", "Abort, then deploy again")
    return found


def _state(settings: Settings, work: Work, topic: Topic) -> MirrorState:
    state = read_state(settings, topic, work.pipeline.transactional)
    if state is None:
        raise RefusedError("from", f"{topic.name!r} has no mirror", f"Start it with the DAG mirror_{topic.name}")
    return state
