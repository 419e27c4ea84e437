"""When a mirror is proven: before a rewind reads a range of it, and all of it whenever somebody asks."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import delta_log, kafka
from rewind.adapters import mirror as table
from rewind.adapters.mirror_reader import read_state
from rewind.adapters.session import session
from rewind.core import mirror_proof, names
from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, RefusedError, RetryError, RewindError
from rewind.core.mirror_proof import BEFORE, WHOLE, Hole, Proof
from rewind.core.model import MirrorState, Topic
from rewind.core.offsets import OffsetRange, Ranges, between, ends, merged, starts, within
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.declared import pipelines
from rewind.registry.database import reading, writing
from rewind.registry.mirrors import mirror_log, proof_log
from rewind.runtime.kafka.broker import Broker
from rewind.steps.mirroring.mirror_proof import KafkaRows, Parts, Prover, Source

MOST_COMMITS = 2_000
"""Commits since the last proof that are read to see that it still holds: beyond, all is read again."""
ASKED = "prove"
"""Who asks, when it is no rewind."""

log = logging.getLogger(__name__)


def run(settings: Settings, topics: Sequence[str]) -> None:
    """Prove whole mirrors; one that is damaged or cannot be proven does not stop the others.

    Args:
        settings: The installation.
        topics: Whose mirrors; none for all.

    Raises:
        IntegrityError: Some are damaged; what is wrong is in the log and in the evidence.
        RetryError: Some could not be proven.
    """
    spark = session("prove", "UTC")
    damaged, failed = [], []
    for name in topics or _mirrored_topics(settings):
        try:
            if _proven(spark, settings, name) != WHOLE:
                damaged.append(name)
        except RewindError as error:
            log.error("mirror of %s: %s", name, error)
            failed.append(name)
    if damaged:
        raise IntegrityError(f"the mirrors of {', '.join(damaged)} are damaged: the lines above say where")
    if failed:
        raise RetryError(f"not verified: {', '.join(failed)}")


def _mirrored_topics(settings: Settings) -> list[str]:
    with reading(settings.registry_url) as connection:
        return mirror_log.topics(connection)


def _proven(spark: SparkSession, settings: Settings, name: str) -> str:
    topic = Broker(settings).topic(name)
    if topic is None:
        raise RefusedError("topic", f"{name!r} is not on the broker", "Fix the name, or leave its mirror alone")
    declared = pipelines.load_all(settings.pipelines)[0]
    transactional = any(one.transactional for one in declared if one.source_topic == name)
    source = Source(topic, transactional, from_kafka(spark, settings, topic))
    return prove(spark, settings, source, None, ASKED, again=True).verdict


def before_reading(spark: SparkSession, settings: Settings, plan: Plan, rewind_id: str) -> list[str]:
    """Prove the range that a rewind will read of the mirror, and return what was found as lines.

    Raises:
        RefusedError: Records of it are lost, or are not what was written.
    """
    topic = Broker(settings).topic(plan.topic)
    if topic is None or topic.id != plan.topic_id:
        raise RefusedError("source.topic", f"{plan.topic} was deleted or recreated", "Make a new plan")
    source = Source(topic, plan.declared.transactional, from_kafka(spark, settings, topic))
    proof = prove(spark, settings, source, between(plan.start, plan.end), rewind_id, again=False)
    mirror_proof.refuse(proof, plan.accepted_gaps)
    return mirror_proof.summary(proof)


def from_kafka(spark: SparkSession, settings: Settings, topic: Topic) -> KafkaRows:
    """Return what reads a topic as its mirror does."""

    def rows(ranges: Ranges) -> DataFrame:
        # The reader wants each partition to be named: one that is not asked for is read from its end to its end.
        start, end = {**topic.latest, **starts(ranges)}, {**topic.latest, **ends(ranges)}
        return kafka.as_records(kafka.read_range(spark, settings, topic.name, start, end, "read_committed"))

    return rows


def prove(
    spark: SparkSession, settings: Settings, source: Source, wanted: Ranges | None, asked_by: str, *, again: bool
) -> Proof:
    """Prove a range of a mirror, and record what was found.

    Args:
        spark: The session.
        settings: The installation.
        source: What is proven.
        wanted: The range, cut to what is mirrored; None for all that is.
        asked_by: The rewind, or the run, that asks.
        again: Whether all that Kafka still holds is held against it anew, also what an earlier proof found whole.

    Raises:
        RetryError: Nothing is mirrored yet.
    """
    state = read_state(settings, source.topic, source.transactional)
    if state is None:
        raise RetryError(f"{source.topic.name!r} has no mirror yet: start it with mirror_{source.topic.name}")
    state = replace(state, version=_newest(spark, table.table_path(settings, source.topic.name), state.version))
    ranges = between(state.start(), state.end()) if wanted is None else _mirrored(wanted, state)
    standing = _standing(spark, settings, source.topic, state)
    prover = Prover(spark, settings, source, state, ranges, standing, again)
    proof = prover.proof(_before(wanted or {}, state))
    _record(settings, proof, _holds_for(proof, standing), asked_by)
    for line in mirror_proof.summary(proof):
        log.log(logging.INFO if proof.verdict == WHOLE else logging.ERROR, "%s", line)
    return proof


def _newest(spark: SparkSession, path: str, recorded: int) -> int:
    """Return the newest version: what took records away since the last batch is to be seen too."""
    return max([recorded, *delta_log.versions(spark, path, recorded)])


def _mirrored(wanted: Ranges, state: MirrorState) -> Ranges:
    there = between(state.start(), state.end())
    return {p: r.overlap(there[p]) for p, r in wanted.items() if p in there}


def _before(wanted: Ranges, state: MirrorState) -> list[Hole]:
    """Return the asked offsets that the mirror begins after: nobody claims that it holds them."""
    first = state.start()
    early = {p: OffsetRange(r.start, min(r.end, max(first[p], r.start))) for p, r in wanted.items() if p in first}
    return [Hole(p, part, BEFORE) for p, part in early.items() if len(part)]


def _standing(spark: SparkSession, settings: Settings, topic: Topic, state: MirrorState) -> Parts:
    """Return the offsets for which an earlier proof stands: since then commits have only added others."""
    with reading(settings.registry_url) as connection:
        last = proof_log.newest(connection, topic.name, topic.id, WHOLE)
    if last is None or last.version > state.version:
        return {}
    path = table.table_path(settings, topic.name)
    proven = {p: list(parts) for p, parts in last.holds_for.items()}
    return proven if _only_added(spark, path, last.version, state.version, proven) else {}


def _only_added(spark: SparkSession, path: str, after: int, until: int, proven: Parts) -> bool:
    if until - after > MOST_COMMITS:
        return False
    made = [version for version in delta_log.versions(spark, path, after) if version <= until]
    if made != list(range(after + 1, until + 1)):
        return False
    return all(_adds_others(delta_log.entry(spark, path, version), proven) for version in made)


def _adds_others(entry: delta_log.LogEntry, proven: Parts) -> bool:
    """Return whether a commit took no file away, and says of what it added that it is none of the proven offsets."""
    stated = json.loads(entry.metadata).get("ranges", {}) if entry.metadata else {}
    if entry.removed or entry.counts.keys() - {int(p) for p in stated}:
        return False
    return not any(within([OffsetRange(*bounds)], proven.get(int(p), [])) for p, bounds in stated.items())


def _holds_for(proof: Proof, standing: Parts) -> Parts:
    return {
        p: merged([*standing.get(p, ()), *([proof.ranges[p]] if p in proof.ranges else [])])
        for p in {*standing, *proof.ranges}
    }


def _record(settings: Settings, proof: Proof, holds_for: Mapping[int, Sequence[OffsetRange]], asked_by: str) -> None:
    folder = names.inside(settings.evidence, f"mirror-{proof.topic}", "source.topic")
    name = proof_log.proof_id(proof, asked_by)
    with side_effect("proof.write"):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.json"
        part.write_text(json.dumps(mirror_proof.to_json(proof), indent=1, sort_keys=True))
        part.replace(folder / f"{name}.json")
    with side_effect("proof.record"), writing(settings.registry_url) as connection:
        proof_log.record(connection, proof, holds_for, asked_by)
