"""One contract for the planner's view of mirrors: what the fake promises, the real one keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from rewind.adapters import mirror_reader
from rewind.core.errors import RefusedError
from rewind.core.model import MirrorReader
from rewind.core.offsets import OffsetRange as R
from rewind.core.offsets import ends, starts
from rewind.core.periods import Period, Strays, milliseconds
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.steps.mirroring.mirror import Writer
from tests.support.fake_ports import FakeMirror
from tests.support.fakes import FakeBroker, installation
from tests.support.signatures import public

KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


class RealMirror(mirror_reader.Mirror):
    """The real one, with what the stream of a mirror and an operator do. Spark logs a batch before it runs it."""

    def append(self, topic, ranges, records):
        writer = Writer(self._spark, self._settings, mirror_reader.Broker(self._settings).topic(topic))
        checkpoint = Path(writer.checkpoint)
        batch = len(list(checkpoint.glob("offsets/*")))
        if batch == 0:
            for folder in ("sources/0", "offsets"):
                (checkpoint / folder).mkdir(parents=True)
            (checkpoint / "metadata").write_text(json.dumps({"id": f"{topic}-query"}))
            (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{json.dumps({topic: starts(ranges)})}")
        logged = json.dumps({"batchWatermarkMs": 0}), json.dumps({topic: ends(ranges)})
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(("v1", *logged)))
        writer.append(self._frame(topic, records), batch)

    def _frame(self, topic, records):
        rows = [(None, b"{}", topic, p, o, at, 0, None) for (p, o), at in records.items()]
        # As from Kafka: each partition in a task, hence a file, of its own.
        parts = [
            self._spark.createDataFrame([row for row in rows if row[3] == p], KAFKA).coalesce(1)
            for p in sorted({row[3] for row in rows})
        ]
        return reduce(DataFrame.unionByName, parts)

    def record_deletion(self, topic, partition, gone):
        found = mirror_reader.Broker(self._settings).topic(topic)
        with writing(self._settings.registry_url) as connection:
            mirror_log.record_deletion(connection, topic, found.id, partition, gone, "asked for")


def of_transactions(seen):
    """Return the same mirrors for a source that is written by transactions."""
    if isinstance(seen, FakeMirror):
        return replace(seen, transactional=True)
    return RealMirror(seen._spark, seen._settings, transactional=True)


@pytest.fixture(scope="module")
def broker():
    """A broker in memory: it keeps the contract of the real one."""
    return FakeBroker()


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.integration)])
def seen(request, broker, tmp_path_factory):
    """The mirrors of a broker: in memory, and in Delta. The one of `visits` has three commits."""
    broker.make("visits", 3)
    broker.make("unmirrored")
    if request.param == "fake":
        yield mirrored(FakeMirror(broker))
        return
    settings = installation(tmp_path_factory.mktemp("mirrors"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mirror_reader, "Broker", lambda _: broker)
        yield mirrored(RealMirror(request.getfixturevalue("session"), settings, transactional=False))


def at(text):
    return datetime.fromisoformat(f"2025-09-04T{text}").replace(tzinfo=UTC)


def mirrored(mirror):
    """Mirror `visits`: with holes, times out of order, a partition without news, and one that is added."""
    first = {(0, 2): "10:00", (0, 3): "10:05", (0, 5): "10:02", (1, 0): "10:01", (1, 1): "10:01", (1, 2): "10:03"}
    last = {(1, 3): "10:30", (1, 4): "10:20", (2, 0): "09:00"}
    mirror.append("visits", {0: R(2, 6), 1: R(0, 3)}, {place: at(time) for place, time in first.items()})
    mirror.append("visits", {0: R(6, 9), 1: R(3, 3)}, {(0, 6): at("10:06")})
    mirror.append("visits", {0: R(9, 11), 1: R(3, 5), 2: R(0, 1)}, {place: at(time) for place, time in last.items()})
    mirror.record_deletion("visits", 1, R(1, 2))
    return mirror


# --- what a mirror holds


def test_commits_add_up_to_what_was_read_and_the_holes_in_it(seen, broker):
    found = seen.state("visits")
    assert (found.version, found.topic_id, found.records) == (3, broker.topic("visits").id, 10)
    assert found.covered == {0: [R(2, 11)], 1: [R(0, 5)], 2: [R(0, 1)]}
    assert found.holes == {0: [R(4, 5), R(7, 11)], 1: [R(1, 2)], 2: []}
    assert (found.start(), found.end()) == ({0: 2, 1: 0, 2: 0}, {0: 11, 1: 5, 2: 1})
    assert found.bytes > 0


def test_of_a_plain_topic_only_what_was_deleted_on_purpose_is_a_legal_hole(seen):
    assert seen.state("visits").legal_holes == {0: [], 1: [R(1, 2)], 2: []}


def test_where_transactions_write_all_holes_are_legal(seen):
    found = of_transactions(seen).state("visits")
    assert found.legal_holes == found.holes == {0: [R(4, 5), R(7, 11)], 1: [R(1, 2)], 2: []}


def test_where_compaction_works_all_holes_are_legal_and_bytes_grow(seen, broker):
    broker.make("carts", 1, **{"cleanup.policy": "compact,delete"})
    seen.append("carts", {0: R(0, 4)}, {(0, 1): at("10:00"), (0, 3): at("10:10")})
    first = seen.state("carts")
    assert (first.version, first.records, first.legal_holes) == (1, 2, {0: [R(0, 1), R(2, 3)]})
    seen.append("carts", {0: R(4, 5)}, {(0, 4): at("10:11")})
    second = seen.state("carts")
    assert (second.version, second.records, second.covered) == (2, 3, {0: [R(0, 5)]})
    assert second.bytes > first.bytes


# --- instants


@pytest.mark.parametrize(
    ("time", "first"),
    [
        ("08:00", {0: 2, 1: 0, 2: 0}),
        ("09:00", {0: 2, 1: 0, 2: 0}),
        ("09:00:00.001", {0: 2, 1: 0}),
        ("10:01", {0: 3, 1: 0}),
        ("10:02", {0: 3, 1: 2}),
        ("10:05", {0: 3, 1: 3}),
        ("10:05:00.001", {0: 6, 1: 3}),
        ("10:20:00.001", {1: 3}),
        ("10:30", {1: 3}),
        ("10:30:00.001", {}),
    ],
)
def test_an_instant_is_the_first_offset_of_a_record_as_young_in_each_partition(seen, time, first):
    assert since(seen, "visits", time) == first


def since(seen, topic, time):
    return starts(seen.within(topic, Period(since=milliseconds(at(time)))))


def test_an_instant_is_the_same_in_any_zone():
    assert milliseconds(at("10:05").astimezone(timezone(timedelta(hours=-9)))) == milliseconds(at("10:05"))
    assert milliseconds(at("10:05:00.000001")) == milliseconds(at("10:05:00.001"))


PERIODS = [
    ("10:01", "10:03", {0: R(5, 6), 1: R(0, 2)}, 0),
    ("10:00", "10:05", {0: R(2, 6), 1: R(0, 3)}, 1),
    ("10:00", "10:05:00.001", {0: R(2, 6), 1: R(0, 3)}, 0),
    ("10:05", "10:07", {0: R(3, 7)}, 1),
    ("10:20", "10:21", {1: R(4, 5)}, 0),
    (None, "10:01", {0: R(2, 3), 2: R(0, 1)}, 0),
    (None, "10:20:00.001", {0: R(2, 7), 1: R(0, 5), 2: R(0, 1)}, 1),
    ("10:06", None, {0: R(6, 7), 1: R(3, 5)}, 0),
    ("11:00", "12:00", {}, 0),
]


@pytest.mark.parametrize(("first", "end", "held", "others"), PERIODS)
def test_a_period_reaches_from_its_first_record_to_its_last_whatever_lies_between(seen, first, end, held, others):
    asked = Period(*(None if time is None else milliseconds(at(time)) for time in (first, end)))
    found = seen.within("visits", asked)
    assert found == held
    assert seen.strays("visits", found, asked) == Strays(others, 0)


# --- other topics


def test_a_topic_that_was_never_mirrored_has_no_mirror(seen):
    assert seen.state("unmirrored") is None
    assert refused(seen, "unmirrored") == ("source.topic", "'unmirrored' has no mirror", "mirror_unmirrored")


def test_a_topic_that_is_not_on_the_broker_has_none_either(seen):
    assert seen.state("nowhere") is None
    assert refused(seen, "nowhere")[:2] == ("source.topic", "'nowhere' is not on the broker")


def test_a_topic_that_is_deleted_and_made_again_begins_anew(seen, broker):
    """Case C04: rows of the old topic are not mixed with the new ones."""
    old = broker.make("orders")
    seen.append("orders", {0: R(0, 5)}, {(0, o): at("10:00") for o in range(5)})
    assert (seen.state("orders").records, since(seen, "orders", "09:00")) == (5, {0: 0})

    broker.delete_topic("orders", old.id)
    assert seen.state("orders") is None
    assert refused(seen, "orders")[1] == "'orders' is not on the broker"

    new = broker.make("orders")
    assert seen.state("orders") is None
    assert refused(seen, "orders")[1] == "'orders' has no mirror"

    seen.append("orders", {0: R(1, 3)}, {(0, 1): at("08:00"), (0, 2): at("08:01")})
    found = seen.state("orders")
    assert (found.version, found.topic_id, found.records, found.covered) == (2, new.id, 2, {0: [R(1, 3)]})
    assert since(seen, "orders", "08:00:30") == {0: 2}
    assert since(seen, "orders", "09:00") == {}


def refused(seen, topic):
    with pytest.raises(RefusedError) as raised:
        seen.within(topic, Period())
    return raised.value.field, raised.value.problem, raised.value.cure.rpartition(" ")[2]


# --- the fake has no more and no less


def test_the_fake_has_the_public_methods_of_the_real_one():
    fake, port = public(FakeMirror), public(MirrorReader)
    owners = {name: parameters for name, parameters in public(RealMirror).items() if name in fake}
    assert {name: fake.pop(name) for name in owners} == owners
    real = public(mirror_reader.Mirror)
    assert fake == port == {name: real[name] for name in port}
