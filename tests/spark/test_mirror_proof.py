"""The proof of a mirror: each kind of hole, repeat and difference is planted, once and several times, and found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror
from rewind.core import mirror_proof
from rewind.core.errors import RefusedError
from rewind.core.mirror_proof import Hole, Proof, Repeats
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.settings import Settings
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log, proof_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.steps.mirroring import proving
from rewind.steps.mirroring.mirror_proof import Source
from rewind.transforms.records import mirror_checks
from tests.support import fakes
from tests.support.fakes import TOPIC, TOPIC_ID

pytestmark = pytest.mark.full

R = OffsetRange
BUCKET = mirror_checks.BUCKET
FIRST = (1 << 31) + 2 * BUCKET - 100
"""First offset of partition 1: beyond 32 bits, and its 300 records stand on both sides of an edge of a bucket."""
RECORDS = {0: R(0, 300), 1: R(FIRST, FIRST + 300)}
KAFKA = {0: 200, 1: FIRST + 50}
"""Kafka's earliest offsets."""
NOTHING = {"repeats_equal": 0, "repeats_different": 0, "changed": 0, "extra": 0, "lost": 0}


@dataclass
class World:
    """A mirror, its topic, and what Kafka holds."""

    spark: SparkSession
    settings: Settings
    path: str
    asked: list[Ranges] = field(default_factory=list)
    theirs: Callable[[DataFrame], DataFrame] = lambda rows: rows
    transactional: bool = False
    config: dict[str, str] = field(default_factory=dict)
    earliest: dict[int, int] = field(default_factory=lambda: dict(KAFKA))

    def prove(self, wanted: Ranges | None = None, *, again: bool = True) -> Proof:
        topic = fakes.topic(self.earliest, {p: r.end for p, r in RECORDS.items()}, **self.config)
        source = Source(topic, self.transactional, self.kafka)
        return proving.prove(self.spark, self.settings, source, wanted, "a-test", again=again)

    def kafka(self, ranges: Ranges) -> DataFrame:
        self.asked.append(ranges)
        rows = self.theirs(records(self.spark, RECORDS))
        return rows.where(mirror.at_any({p: [r] for p, r in ranges.items()}))

    def append(self, rows: DataFrame, batch: int, ranges: Ranges, holes: Mapping[int, list[OffsetRange]]) -> None:
        counts = {p: len(r) - sum(map(len, holes.get(p, []))) for p, r in ranges.items()}
        made = Commit(batch + 1, TOPIC_ID, ranges, counts, dict(holes), 1)
        self.plant(rows, batch, json.dumps(made.to_json()))
        with writing(self.settings.registry_url) as connection:
            mirror_log.record(connection, TOPIC, made)

    def plant(self, rows: DataFrame, batch: int, metadata: str = "") -> None:
        one_file_each = rows.repartitionByRange(2, "partition")
        mirror.append(one_file_each, self.path, TOPIC_ID, "2025-09-04", application="m", batch=batch, metadata=metadata)

    def lose(self, *parts: tuple[int, int, int]) -> None:
        gone = {p: [R(start, end) for q, start, end in parts if q == p] for p in RECORDS}
        DeltaTable.forPath(self.spark, self.path).delete(mirror.at_any(gone))

    def change(self, column: str, value: Column, *places: tuple[int, int]) -> None:
        """Change records of the mirror."""
        DeltaTable.forPath(self.spark, self.path).update(at(places), {column: value})

    def differ(self, column: str, value: Column, *places: tuple[int, int]) -> None:
        """Let Kafka hold other records than the mirror."""
        before, there = self.theirs, at(places)
        self.theirs = lambda rows: before(rows).withColumn(column, F.when(there, value).otherwise(F.col(column)))


def at(places: Sequence[tuple[int, int]]) -> Column:
    return mirror.at_any({p: [R(o, o + 1) for q, o in places if q == p] for p in RECORDS})


def records(spark: SparkSession, ranges: Ranges, without: Sequence[tuple[int, int]] = ()) -> DataFrame:
    rows = [(p, o) for p, r in ranges.items() for o in range(r.start, r.end) if (p, o) not in set(without)]
    header = F.array(F.struct(F.lit("h").alias("key"), F.lit(b"\x00").alias("value")))
    return spark.createDataFrame(rows, "partition int, offset long").select(
        "partition",
        "offset",
        F.timestamp_seconds(F.lit(1_756_969_200) + F.col("offset") % 1000).alias("timestamp"),
        F.lit(0).alias("timestamp_type"),
        F.lit(TOPIC).alias("topic"),
        F.when(F.col("offset") % 3 > 0, F.col("offset").cast("string").cast("binary")).alias("key"),
        F.when(F.col("offset") % 5 > 0, F.concat(F.lit("v"), "offset").cast("binary")).alias("value"),
        F.when(F.col("offset") % 7 == 0, header)
        .otherwise(F.array().cast("array<struct<key:string,value:binary>>"))
        .alias("headers"),
    )


@pytest.fixture(scope="module")
def template(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of both partitions in two commits."""
    home = tmp_path_factory.mktemp("mirrored") / "home"
    settings = fakes.installation(home)
    made = World(session, settings, mirror.table_path(settings, TOPIC))
    mirror.create(session, made.path)
    for batch in range(2):
        part = {p: R(r.start + 150 * batch, r.start + 150 * (batch + 1)) for p, r in RECORDS.items()}
        made.append(records(session, part), batch, part, {})
    return home


@pytest.fixture
def world(spark: SparkSession, template: Path, tmp_path: Path) -> World:
    """A copy of that mirror, and a Kafka that holds its end."""
    settings = fakes.copied(template, tmp_path / "home")
    return World(spark, settings, mirror.table_path(settings, TOPIC))


def found(proof: Proof, *names: str) -> dict[str, int]:
    return {name: proof.counts()[name] for name in (*NOTHING, *names)}


def test_an_untouched_mirror_is_whole_and_kafka_is_asked_for_the_overlap(world: World) -> None:
    proof = world.prove()
    assert (proof.verdict, proof.holes, found(proof)) == ("whole", (), NOTHING)
    assert (proof.read, proof.compared) == (600, 350)
    assert world.asked == [{0: R(200, 300), 1: R(FIRST + 50, FIRST + 300)}]
    assert mirror_proof.summary(proof) == ["mirror of visits, version 2: whole (offsets 600, read 600, compared 350)"]


@pytest.mark.parametrize(
    "parts",
    [
        # Of the last two Kafka holds the records still; one of them is the end of the mirror.
        [(0, 0, 1), (0, 7, 8), (0, 299, 300), (1, FIRST + 99, FIRST + 101)],
        [(0, 3, 5), (0, 7, 8), (0, 195, 205), (1, FIRST, FIRST + 300)],
    ],
    ids=["a few", "a partition"],
)
def test_what_nothing_explains_is_lost(world: World, parts: list[tuple[int, int, int]]) -> None:
    world.lose(*parts)
    proof = world.prove()
    assert [(h.partition, h.part.start, h.part.end) for h in merged_holes(proof)] == parts
    count = sum(end - start for _, start, end in parts)
    assert found(proof) == {**NOTHING, "lost": count}
    assert proof.verdict == "damaged"
    assert proof.read == 600 - count


def merged_holes(proof: Proof) -> list[Hole]:
    assert {hole.reason for hole in proof.holes} == {"lost"}
    return list(proof.holes)


def test_a_loss_refuses_a_rewind_and_tells_partition_offsets_and_cure(world: World) -> None:
    world.lose((0, 6, 8), (0, 20, 21))
    proof = world.prove({0: R(0, 50)})
    with pytest.raises(RefusedError) as refused:
        mirror_proof.refuse(proof, {})
    assert refused.value.problem == "the mirror has lost partition 0 offset 6-7; partition 0 offset 20"
    assert "`rewind record-deletion visits`" in refused.value.cure
    with pytest.raises(RefusedError, match="lost partition 0 offset 20"):
        mirror_proof.refuse(proof, {0: [R(6, 8)]})
    mirror_proof.refuse(proof, {0: [R(6, 8), R(20, 21)]})
    # A range beside them may be read.
    mirror_proof.refuse(world.prove({0: R(8, 20), 1: R(FIRST, FIRST + 9)}), {})


def test_recorded_deletions_are_legal_though_kafka_holds_the_records(world: World) -> None:
    gone = [(0, 10, 12), (0, 250, 251), (1, FIRST + 98, FIRST + 103)]
    world.lose(*gone)
    with writing(world.settings.registry_url) as connection:
        for p, start, end in gone:
            mirror_log.record_deletion(connection, TOPIC, TOPIC_ID, p, R(start, end), "asked for")
    proof = world.prove()
    assert (proof.verdict, found(proof, "deletion")) == ("whole", {**NOTHING, "deletion": 8})
    world.lose((0, 12, 13))
    assert found(world.prove(), "deletion") == {**NOTHING, "deletion": 8, "lost": 1}


def test_a_loss_is_found_where_a_record_stands_at_a_hole_that_was_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many offsets as there should be, but not the same ones."""
    grown(world, monkeypatch, [(0, 303)])
    world.transactional, world.earliest = True, {0: 310, 1: FIRST + 310}
    world.plant(records(world.spark, {0: R(303, 304)}), 5)
    world.lose((0, 305, 306))
    assert world.prove().lost == [Hole(0, R(305, 306), "lost")]


EMPTY = [(0, 303), (0, 306), (0, 307), (1, FIRST + 309)]


@pytest.mark.parametrize(
    ("config", "transactional", "reason"),
    [({"cleanup.policy": "compact"}, False, "compaction"), ({}, True, "transaction")],
    ids=["compacted", "transactional"],
)
def test_holes_that_the_commits_found_are_legal_where_the_topic_leaves_them(
    world: World, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], transactional: bool, reason: str
) -> None:
    grown(world, monkeypatch, EMPTY)
    world.config, world.transactional = config, transactional
    # Kafka begins after them.
    world.earliest = {0: 310, 1: FIRST + 310}
    proof = world.prove()
    assert (proof.verdict, found(proof, reason)) == ("whole", {**NOTHING, reason: 4})
    # A record that vanished after it was mirrored is no compaction of the topic.
    world.lose((0, 5, 6), (0, 304, 305))
    again = world.prove()
    assert found(again, reason) == {**NOTHING, reason: 4, "lost": 2}
    assert [hole.part for hole in again.lost] == [R(5, 6), R(304, 305)]


def grown(world: World, monkeypatch: pytest.MonkeyPatch, empty: Sequence[tuple[int, int]]) -> None:
    """Mirror ten offsets more a partition, at some of which Kafka gave no record."""
    more = {0: R(300, 310), 1: R(FIRST + 300, FIRST + 310)}
    holes: dict[int, list[OffsetRange]] = {0: [], 1: []}
    for p, o in empty:
        holes[p].append(R(o, o + 1))
    world.append(records(world.spark, more, empty), 2, more, holes)
    monkeypatch.setitem(RECORDS, 0, R(0, 310))
    monkeypatch.setitem(RECORDS, 1, R(FIRST, FIRST + 310))
    world.theirs = lambda rows: rows.where(~at(empty))


def test_a_marker_is_told_by_kafka_that_shows_no_record_there_either(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(world, monkeypatch, EMPTY)
    proof = world.prove()
    assert (proof.verdict, found(proof, "transaction")) == ("whole", {**NOTHING, "transaction": 4})
    # Kafka holds a record at one of them: the mirror passed over it.
    world.theirs = lambda rows: rows.where(
        ~mirror.at_any({0: [R(303, 304), R(306, 307)], 1: [R(FIRST + 309, FIRST + 310)]})
    )
    again = world.prove()
    assert found(again, "transaction") == {**NOTHING, "transaction": 3, "lost": 1}
    assert again.lost == [Hole(0, R(307, 308), "lost")]
    # Kafka cannot be asked any more.
    world.earliest = {0: 305, 1: FIRST + 310}
    world.lose((0, 0, 1))
    assert [hole.part for hole in world.prove().lost] == [
        R(0, 1),
        R(303, 304),
        R(307, 308),
        R(FIRST + 309, FIRST + 310),
    ]


def test_offsets_that_the_mirror_begins_after_are_no_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = world.prove({0: R(100, 200), 1: R(FIRST - 40, FIRST + 10)})
    assert (proof.verdict, proof.read) == ("whole", 110)
    assert proof.holes == (Hole(1, R(FIRST - 40, FIRST), "before_mirror"),)


def test_equal_repeats_inform_and_different_ones_damage(world: World) -> None:
    places = ((0, 5), (0, 299), (1, FIRST + 100))
    again = records(world.spark, dict(RECORDS)).where(at(places))
    # Twice more: what cancels under XOR is seen too.
    world.plant(again, 5)
    world.plant(again, 6)
    proof = world.prove()
    assert (proof.verdict, found(proof)) == ("whole", {**NOTHING, "repeats_equal": 2 * len(places)})
    world.plant(again.withColumn("value", F.lit(b"other")), 7)
    worse = world.prove()
    assert (worse.verdict, found(worse)) == ("damaged", {**NOTHING, "repeats_different": len(places)})
    assert worse.repeats == Repeats(0, len(places), places)
    with pytest.raises(RefusedError, match="different records at one offset: partition 0 offset 5"):
        mirror_proof.refuse(worse, {})


def test_a_hole_beside_a_repeat_is_found(world: World) -> None:
    """Their number is right, and so is the sum of their offsets: 10 is there twice, 8 and 12 are not, and nor is 11."""
    world.lose((0, 8, 9), (0, 12, 13))
    world.plant(records(world.spark, {0: R(10, 11)}), 5)
    world.plant(records(world.spark, {0: R(10, 11)}), 6)
    proof = world.prove()
    assert found(proof) == {**NOTHING, "lost": 2, "repeats_equal": 2}
    assert [hole.part for hole in proof.lost] == [R(8, 9), R(12, 13)]


OTHERS: dict[str, Callable[[], Column]] = {
    "key": lambda: F.lit(b"other"),
    "value": lambda: F.lit(b"other"),
    "timestamp": lambda: F.col("timestamp") + F.expr("interval 1 millisecond"),
    "headers": lambda: F.array(F.struct(F.lit("h").alias("key"), F.lit(None).cast("binary").alias("value"))),
}


def test_a_record_that_is_not_kafkas_is_found(world: World) -> None:
    world.change("value", OTHERS["value"](), (0, 201))
    proof = world.prove()
    assert (proof.verdict, found(proof)) == ("damaged", {**NOTHING, "changed": 1})
    assert proof.unlike.first == ((0, 201),)
    with pytest.raises(RefusedError, match="not as in Kafka: partition 0 offset 201"):
        mirror_proof.refuse(proof, {})


def test_each_column_that_is_not_kafkas_is_found_on_both_sides_of_an_edge(world: World) -> None:
    places = [(0, 299), (1, FIRST + 50), (1, FIRST + 99), (1, FIRST + 100)]
    for column, place in zip(OTHERS, places, strict=True):
        world.differ(column, OTHERS[column](), place)
    # The first Kafka does not hold any more: nobody can tell.
    world.change("value", F.lit(None).cast("binary"), (0, 199), (0, 204))
    proof = world.prove()
    assert (proof.verdict, found(proof)) == ("damaged", {**NOTHING, "changed": 5})
    assert proof.unlike.first == ((0, 204), *places)


def test_a_value_that_became_the_key_and_records_that_changed_places_are_found(world: World) -> None:
    """Neither changes what hashes of bytes alone would add up to."""
    world.differ("key", F.lit(b"v211"), (0, 211))
    world.differ("value", F.lit(b"211"), (0, 211))
    assert world.prove().unlike.first == ((0, 211),)
    world.theirs = lambda rows: rows
    for one, other in ((211, 214), (214, 211)):
        world.differ("key", F.lit(b"%d" % other), (0, one))
        world.differ("value", F.lit(b"v%d" % other), (0, one))
        world.differ("timestamp", F.timestamp_seconds(F.lit(1_756_969_200 + other)), (0, one))
    proof = world.prove()
    assert (proof.unlike.changed, proof.unlike.first) == (2, ((0, 211), (0, 214)))


def test_what_only_the_mirror_holds_is_extra_unless_the_topic_is_compacted(world: World) -> None:
    world.theirs = lambda rows: rows.where(~mirror.at_any({0: [R(220, 223)]}))
    proof = world.prove()
    assert (proof.verdict, found(proof)) == ("damaged", {**NOTHING, "extra": 3})
    world.config = {"cleanup.policy": "compact"}
    assert found(world.prove()) == NOTHING


def test_what_is_proven_is_not_read_again_while_commits_only_add(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.prove().read == 600
    assert world.prove().read == 350, "the overlap alone"
    grown(world, monkeypatch, [])
    assert world.prove().read == 370, "the overlap, which has grown"
    world.earliest = {0: 310, 1: FIRST + 310}
    assert world.prove().read == 0
    # A commit that takes files away may have taken anything with them, though it adds none.
    world.lose((1, FIRST, FIRST + 310))
    assert found(world.prove()) == {**NOTHING, "lost": 310}


def test_a_rewind_reads_of_kafka_what_came_since_the_proof(world: World) -> None:
    first, last = (
        (R(r.start, r.end - 40) for r in RECORDS.values()),
        {p: R(r.end - 40, r.end) for p, r in RECORDS.items()},
    )
    proven = world.prove(dict(enumerate(first)))
    assert (proven.read, proven.compared) == (520, 270)
    proof = world.prove(dict(RECORDS), again=False)
    assert (proof.verdict, proof.read, proof.compared) == ("whole", 80, 80)
    assert world.asked[1:] == [last]
    assert world.prove(dict(RECORDS), again=False).read == 0
    # The night's proof asks for all that Kafka still holds.
    assert world.prove(dict(RECORDS)).compared == 350


def test_a_record_that_is_not_kafkas_is_found_where_it_came_since_the_proof(world: World) -> None:
    world.prove({0: R(0, 250), 1: R(FIRST, FIRST + 250)})
    world.differ("value", F.lit(b"x"), (0, 249), (0, 299))
    proof = world.prove(dict(RECORDS), again=False)
    assert (proof.verdict, proof.unlike.first) == ("damaged", ((0, 299),))


def test_a_repeat_that_was_added_after_a_proof_is_found(world: World) -> None:
    world.prove()
    world.plant(records(world.spark, {0: R(5, 6)}), 5)
    assert found(world.prove()) == {**NOTHING, "repeats_equal": 1}


def test_a_proof_is_recorded_with_its_evidence(world: World) -> None:
    world.lose((0, 6, 8))
    proof = world.prove()
    world.prove()
    with writing(world.settings.registry_url) as connection:
        kept = proof_log.newest(connection, TOPIC, TOPIC_ID)
        assert proof_log.newest(connection, TOPIC, TOPIC_ID, "whole") is None
    assert kept is not None
    assert (kept.verdict, kept.asked_by, kept.counts["lost"], kept.version) == ("damaged", "a-test", 2, 3)
    assert kept.told[1:] == ["lost: partition 0 offset 6-7"]
    (file,) = (world.settings.evidence / "mirror-visits").glob("*.json")
    body = json.loads(file.read_text())
    assert file.stem == kept.proof_id == proof_log.proof_id(proof, "a-test")
    assert (body["verdict"], body["holes"]) == ("damaged", [[0, 6, 8, "lost"]])
