"""Topics of every kind of byte and their mirrors: held against each other, across kills, and after compactions."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import signal
from datetime import UTC, datetime, timedelta

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror
from rewind.core.offsets import OffsetRange
from tests.support.workshop import Workshop, wait_for

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


def compaction_figures(
    spark: SparkSession, path: str, records: int, commits: int = 6, files: int = 120
) -> tuple[int, int]:
    """Return what `opened_against_held` says of a hundredth of the offsets, after a compaction into so many files."""
    filled(spark, path, records, days=2, commits=commits)
    before = spark.read.format("delta").load(path)
    rows_before = sorted(map(tuple, before.select("partition", "offset", "value").collect()))
    for day in ("2026-01-01", "2026-01-02"):
        mirror.compact(spark, path, day, file_records=max(1, records // files))
    after = spark.read.format("delta").load(path)
    assert sorted(map(tuple, after.select("partition", "offset", "value").collect())) == rows_before
    per_partition = records // 3
    start = per_partition // 2
    ranges = {p: OffsetRange(start, start + per_partition // 100) for p in range(3)}
    return opened_against_held(spark, path, ranges)
