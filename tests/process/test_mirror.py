"""The mirror: exactly once across kills, one writer, pruned reads after compaction, deletions as legal holes."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror
from rewind.adapters.mirror_reader import read_state
from rewind.control import bundle, chunk_log, mirror_log, rewinds, submit, supervise
from rewind.control.broker import Broker
from rewind.core.offsets import OffsetRange, ends
from rewind.steps import maintenance
from tests.support.workshop import Workshop, declare, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

HEADERS = [("trace", b"\x00\xff"), ("trace", b"again")]


def produce_all_kinds(shop: Workshop, count: int, first: int = 0) -> None:
    """Produce records of every kind of byte: null and empty, not UTF-8, zero bytes, headers."""
    producer = KafkaProducer(bootstrap_servers=shop.settings.bootstrap, linger_ms=20)
    values = [b"\xff", b"\xfe", b"", None, b"\xef\xbb\xbf{}", b"a\x00b", b"{}"]
    # The client sends no record without key and value, so a null value gets a key.
    keys = [None, b"", b"\x00\x01\x80", b"k"]
    for n in range(first, first + count):
        value = values[n % 7]
        headers = HEADERS if n % 5 == 0 else []
        producer.send(
            shop.topic,
            key=b"tombstone" if value is None else keys[n % 4],
            value=value and value + str(n).encode(),
            headers=headers,
            partition=n % 3,
            timestamp_ms=1_756_969_200_000 + n,
        )
    producer.flush()
    producer.close()


def topic_digests(shop: Workshop) -> set[tuple[object, ...]]:
    """Return each record of the topic: place, timestamp and its type, and the SHA-256 of key, value and headers."""
    end = shop.end()
    consumer = KafkaConsumer(bootstrap_servers=shop.settings.bootstrap, enable_auto_commit=False)
    places = [TopicPartition(shop.topic, p) for p in end]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    found: set[tuple[object, ...]] = set()

    def drained() -> bool:
        for batch in consumer.poll(200).values():
            for r in batch:
                place = (r.partition, r.offset, r.timestamp, r.timestamp_type)
                found.add((*place, digest(r.key), digest(r.value), tuple((k, digest(v)) for k, v in r.headers)))
        return all(consumer.position(tp) >= end[tp.partition] for tp in places)

    wait_for("the whole topic", drained, 120)
    consumer.close()
    return found


def mirror_digests(shop: Workshop, spark: SparkSession) -> list[tuple[object, ...]]:
    """Return the same of the mirror's rows; a list, since a row that stands twice must show."""
    rows = spark.read.format("delta").load(mirror.table_path(shop.settings, shop.topic))
    sha = {name: F.sha2(F.col(name), 256).alias(name) for name in ("key", "value")}
    headers = F.transform("headers", lambda h: F.struct(h["key"], F.sha2(h["value"], 256))).alias("headers")
    millis = F.unix_millis("timestamp").alias("timestamp")
    picked = rows.select("partition", "offset", millis, "timestamp_type", sha["key"], sha["value"], headers)
    return [
        (r[0], r[1], r[2], r[3], r[4], r[5], tuple((h[0], h[1]) for h in r[6] or ())) for r in picked.toLocalIterator()
    ]


def digest(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()


def kill_and_compare(shop: Workshop, spark: SparkSession, kills: int, records: int, seed: int) -> None:
    """Mirror a topic while the driver is killed at drawn moments, and hold it against the topic."""
    drawn = random.Random(seed)
    produced = 0
    for _ in range(kills):
        shop.start(shop.mirror)
        produce_all_kinds(shop, records // kills, produced)
        produced += records // kills
        # Somewhere between nothing of the new records and all of them; the driver is mostly in a batch then.
        target = min(drawn.randrange(produced), produced - records // kills)
        wait_for("some progress", functools.partial(reached, shop, target))
        holder = shop.holder(shop.mirror)
        assert holder is not None
        os.killpg(holder.group, signal.SIGKILL)
        wait_for("the driver's end", lambda: shop.holder(shop.mirror) is None)
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    mirrored = mirror_digests(shop, spark)
    assert len(mirrored) == len(set(mirrored)) == produced
    assert set(mirrored) == topic_digests(shop)


def reached(shop: Workshop, target: int) -> bool:
    return sum(shop.position(shop.mirror).values()) >= target


def test_the_mirror_equals_the_topic_across_kills_and_has_one_writer(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("mirrored", 3)
    kill_and_compare(shop, spark, kills=3, records=2_100, seed=7)
    topic = Broker(shop.settings).topic(shop.topic)
    assert topic is not None
    state = read_state(shop.settings, topic, transactional=False)
    assert state is not None
    assert (state.records, state.end(), state.holes) == (2_100, {0: 700, 1: 700, 2: 700}, {0: [], 1: [], 2: []})

    made = supervise.submit_of(shop.settings, shop.mirror, "mirror", 99)
    second = subprocess.run(
        submit.command(made), env=submit.environment(made), capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 73
    assert f"LeaseHeldError: {shop.mirror}: another process of this host holds its lock" in second.stdout


def filled(spark: SparkSession, path: str, records: int, days: int, commits: int) -> None:
    """Fill a mirror with small commits over closed days, three partitions each."""
    mirror.create(spark, path)
    step = records // (days * commits)
    for n in range(days * commits):
        rows = spark.range(n * step, (n + 1) * step).select(
            (F.col("id") % 3).cast("int").alias("partition"),
            F.floor(F.col("id") / 3).cast("long").alias("offset"),
            F.timestamp_millis(F.col("id")).alias("timestamp"),
            F.lit(0).alias("timestamp_type"),
            F.lit("visits").alias("topic"),
            F.lit(b"k").alias("key"),
            F.sha2(F.col("id").cast("string"), 512).cast("binary").alias("value"),
            F.array().cast("array<struct<key:string,value:binary>>").alias("headers"),
        )
        day = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n // commits)).date().isoformat()
        one_file_a_partition = rows.repartitionByRange(3, "partition")
        mirror.append(one_file_a_partition, path, "T", day, application="fill", batch=n, metadata="{}")


def opened_against_held(spark: SparkSession, path: str, ranges: dict[int, OffsetRange]) -> tuple[int, int]:
    """Return how many files a read of some offsets opens, and how many really hold some of them."""
    newest = spark.sql(f"describe history delta.`{path}`").agg(F.max("version")).first()
    assert newest is not None
    wanted = mirror.read(spark, path, newest[0]).where(mirror.in_ranges(ranges, "T"))
    held = wanted.select(F.input_file_name()).distinct().count()
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        # The scan itself says how many files it was given.
        execution = mirror.read(spark, path, newest[0]).where(mirror.in_ranges(ranges, "T"))._jdf.queryExecution()
        execution.executedPlan().execute().count()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    (scan,) = [node for node in leaves(execution.executedPlan()) if "Scan" in node.nodeName()]
    return scan.metrics().get("numFiles").get().value(), held


def leaves(plan: object) -> list:
    children = plan.children()
    if not children.size():
        return [plan]
    return [leaf for i in range(children.size()) for leaf in leaves(children.apply(i))]


def compaction_figures(spark: SparkSession, path: str, records: int) -> tuple[int, int]:
    filled(spark, path, records, days=2, commits=6)
    before = spark.read.format("delta").load(path)
    rows_before = sorted(map(tuple, before.select("partition", "offset", "value").collect()))
    for day in ("2026-01-01", "2026-01-02"):
        mirror.compact(spark, path, day, file_records=max(1, records // 120))
    after = spark.read.format("delta").load(path)
    assert sorted(map(tuple, after.select("partition", "offset", "value").collect())) == rows_before
    per_partition = records // 3
    start = per_partition // 2
    ranges = {p: OffsetRange(start, start + per_partition // 100) for p in range(3)}
    return opened_against_held(spark, path, ranges)


def test_after_compaction_a_small_range_opens_the_files_that_hold_it(spark: SparkSession, tmp_path: object) -> None:
    opened, held = compaction_figures(spark, str(tmp_path / "table"), 12_000)
    assert held == 3
    assert opened <= 1.1 * held


def test_a_recorded_deletion_is_a_legal_hole(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("deleted", 1)
    shop.produce(*((b"k", b"{}") for _ in range(9)))
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)
    topic = Broker(shop.settings).topic(shop.topic)
    assert topic is not None
    path = mirror.table_path(shop.settings, shop.topic)
    with shop.registry() as connection:
        mirror_log.record_deletion(connection, shop.topic, topic.id, 0, OffsetRange(3, 5), "a visitor asked for it")
    spark.sql(f"delete from delta.`{path}` where offset in (3, 4)")
    state = read_state(shop.settings, topic, transactional=False)
    assert state is not None
    assert (state.holes, state.legal_holes) == ({0: [OffsetRange(3, 5)]}, {0: [OffsetRange(3, 5)]})
    plan = shop.planned("rw-deleted", same_code=True)
    assert plan.records == 7


def test_vacuum_keeps_what_a_plan_pins(
    workshop: Callable[..., Workshop], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop("pinned", 1)
    shop.produce(*((b"k", b"{}") for _ in range(6)))
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)
    path = mirror.table_path(shop.settings, shop.topic)
    plan = shop.planned("rw-pinned", same_code=True)
    spark.sql(f"delete from delta.`{path}` where offset = 0")
    monkeypatch.setenv("REWIND_MIRROR_RETAIN_HOURS", "0")
    now = datetime.now(UTC)
    pinned_at = maintenance.retain_hours(spark, shop.settings, path, shop.topic, now)
    assert 1.0 <= pinned_at < 2.0
    maintenance.maintain(spark, shop.settings, shop.topic, now)
    assert mirror.read(spark, path, plan.mirror_version).count() == 6


def test_a_paused_and_throttled_backfill_resumes(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("paced", 3, backfill={"chunk_records": 300})
    produce_all_kinds(shop, 900)
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.planned("rw-paced", same_code=True)
    shop.step("spin_up", "rw-paced")
    with shop.registry() as connection:
        rewinds.set_controls(connection, "rw-paced", paused=True, records_per_second=None)
    running = submit.make(
        shop.settings,
        bundle.build(shop.settings, shop.pipeline),
        "backfill",
        ["--rewind-id", "rw-paced"],
        name="backfill",
    )
    process = subprocess.Popen(
        submit.command(running),
        env=submit.environment(running),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    wait_for("the pause", lambda: "paused" in process.stdout.readline(), 120)
    with shop.registry() as connection:
        assert [c.state for c in chunk_log.read(connection, "rw-paced")] == ["planned"] * 3
        rewinds.set_controls(connection, "rw-paced", paused=False, records_per_second=100)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    with shop.registry() as connection:
        done = chunk_log.read(connection, "rw-paced")
    assert [(c.state, c.rows) for c in done] == [("done", 300)] * 3
    assert ends(done[-1].ranges) == {0: 300, 1: 300, 2: 300}


def test_deploy_adopts_exactly_the_positions_of_a_group_or_a_checkpoint(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("first", 2, topic="adopted")
    shop.produce(*((b"k", b"{}") for _ in range(9)))
    shop.produce(*((b"k", b"{}") for _ in range(5)), partition=1)
    Broker(shop.settings).commit("old-group", "adopted", {0: 4, 1: 2})
    live = shop.deploy("group:old-group")
    assert shop.position(live) == {0: 4, 1: 2}
    shop.start(live)
    shop.caught_up(live)
    shop.stop(live)
    sources = [r.headers["rewind-source"].split(":", 1)[1] for r in shop.read("first-out-g1-dead")]
    assert sorted(sources) == [f"0:{n}" for n in range(4, 9)] + [f"1:{n}" for n in range(2, 5)]
    assert Broker(shop.settings).group_offsets(live, "adopted") == {0: 9, 1: 5}

    other = Workshop(shop.settings, "second", 1, topic="of-no-matter", output="second-out")
    declare(shop.settings.pipelines, "third", "adopted", output="third-out")
    other.pipeline = "third"
    checkpoint = supervise.checkpoint_folder(shop.settings, live)
    adopted = other.deploy(f"checkpoint:{checkpoint}")
    assert other.position(adopted) == {0: 9, 1: 5}
    other.pipeline = "second"
    refused = other.submit("deploy", "--pipeline", "second", "--from", "group:nobody")
    assert refused.code == 64
    assert "from: group 'nobody' has no committed position on 'of-no-matter'" in refused.output
