"""Records of a mirror, and of Kafka, by buckets of offsets: how many, at which offsets, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewind.core.offsets import OffsetRange

BITS = 15
BUCKET = 1 << BITS
"""Offsets of a bucket: one bit each in the 4 KiB that `bitmap_construct_agg` counts them in."""
KEY = ("partition", "bucket")
SUMS = ("compared", "xor", "sum")
"""What must be the same on both sides of a bucket."""


def content() -> Column:
    """Return the hash of what a record is: its offset, timestamp, key, value and headers.

    A hash passes over nulls, so that each is hashed beside whether it is one; the offset keeps records that were
    swapped from adding up to the same.
    """
    header = F.transform("headers", lambda h: F.struct(h["key"], h["value"].isNull(), h["value"]))
    count = F.coalesce(F.size("headers"), F.lit(0))
    nulls = [F.col(name).isNull() for name in ("key", "value")]
    return F.xxhash64("offset", "timestamp", nulls[0], "key", nulls[1], "value", count, header)


def bucket() -> Column:
    """Return the bucket of a record's offset."""
    return F.shiftright("offset", BITS)


def buckets(rows: DataFrame) -> DataFrame:
    """Return what stands in each bucket.

    Args:
        rows: `partition`, `offset` and `hash`, null where a record is not to be compared.

    Returns:
        `KEY`; `rows`; `offsets`, each once; `places`, the sum of the offsets within the bucket, repeats too; `SUMS`.
    """
    place = F.col("offset") % BUCKET
    return rows.groupBy("partition", bucket().alias("bucket")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bitmap_count(F.bitmap_construct_agg(place)).alias("offsets"),
        F.sum(place).alias("places"),
        F.count("hash").alias("compared"),
        F.bit_xor("hash").alias("xor"),
        # Of a bucket's records the upper twice of their hashes add up without an overflow.
        F.sum(F.shiftright("hash", 32)).alias("sum"),
    )


def counts(rows: DataFrame, certain: Column) -> DataFrame:
    """Return how many records there are of each partition.

    By bitmaps: to count offsets that are distinct, and those among them, Spark would write each row three times.

    Args:
        rows: `partition` and `offset`.
        certain: Whether a record must be there.

    Returns:
        `partition`; `rows`; `offsets`, each once; and `certain`, those among them that must be there.
    """
    place = F.col("offset") % BUCKET
    offsets, sure = (F.bitmap_construct_agg(at) for at in (place, F.when(certain, place)))
    each = rows.groupBy("partition", bucket().alias("bucket")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bitmap_count(offsets).alias("offsets"),
        F.bitmap_count(sure).alias("certain"),
    )
    return each.groupBy("partition").agg(*(F.sum(name).alias(name) for name in ("rows", "offsets", "certain")))


def expected(
    spark: SparkSession,
    asked: Mapping[int, Sequence[OffsetRange]],
    absent: Mapping[int, Sequence[OffsetRange]],
) -> DataFrame:
    """Return what should stand in each bucket: `KEY`, `offsets_due` and `places_due`.

    Args:
        spark: The session.
        asked: Disjoint ranges a partition.
        absent: Ranges within `asked`, disjoint too, at which there is rightly no record.
    """
    parts = [(p, r.start, r.end, 1) for p, rs in asked.items() for r in rs if len(r)]
    parts += [(p, r.start, r.end, -1) for p, rs in absent.items() for r in rs if len(r)]
    spans = spark.createDataFrame(parts, "partition int, start long, end long, sign int")
    last = F.shiftright(F.col("end") - 1, BITS)
    first = F.shiftright("start", BITS)
    each = spans.withColumn("bucket", F.explode(F.sequence(first, last)))
    low = F.greatest("start", F.col("bucket") * BUCKET)
    high = F.least("end", (F.col("bucket") + 1) * BUCKET)
    count = high - low
    # Twice the sum of consecutive numbers.
    twice = (low % BUCKET + (high - 1) % BUCKET) * count
    places = F.shiftright(twice, 1)
    due = [F.sum(F.col("sign") * part).alias(name) for name, part in (("offsets_due", count), ("places_due", places))]
    return each.groupBy(*KEY).agg(*due)


def suspects(found: DataFrame, due: DataFrame, kafka: DataFrame) -> DataFrame:
    """Return the buckets that are not as they should be: `KEY` and whether they `lack`, `repeat` or `differ`.

    Args:
        found: `buckets` of the mirror.
        due: `expected` of the same offsets.
        kafka: `buckets` of Kafka's records of those that are compared.
    """
    theirs = kafka.select(*KEY, *(F.col(name).alias(f"k_{name}") for name in SUMS))
    joined = found.join(due, on=list(KEY), how="full_outer").join(theirs, on=list(KEY), how="full_outer")

    def number(name: str) -> Column:
        return F.coalesce(F.col(name), F.lit(0))

    repeat = number("rows") != number("offsets")
    # Only where nothing stands twice does the sum of the places say which offsets are there.
    elsewhere = ~repeat & (number("places") != number("places_due"))
    lack = (number("offsets") != number("offsets_due")) | elsewhere
    same = [number(name).eqNullSafe(number(f"k_{name}")) for name in SUMS]
    differ = ~(same[0] & same[1] & same[2])
    judged = joined.select(*KEY, lack.alias("lack"), repeat.alias("repeat"), differ.alias("differ"))
    return judged.where("lack OR repeat OR differ")


def repeated(rows: DataFrame) -> DataFrame:
    """Return the offsets that stand more than once: `partition`, `offset`, `copies`, and how many `contents`."""
    grouped = rows.groupBy("partition", "offset")
    counted = grouped.agg(F.count(F.lit(1)).alias("copies"), F.count_distinct("hash").alias("contents"))
    return counted.where(F.col("copies") > 1)


def unlike(mirror: DataFrame, kafka: DataFrame) -> DataFrame:
    """Return the offsets at which both sides are not the same: `partition`, `offset`, and `kind`.

    Args:
        mirror: `partition`, `offset` and `hash` of the mirror, repeats among them.
        kafka: The same of Kafka.

    Returns:
        Of `kind` `held` (by Kafka alone), `extra` (in the mirror alone) or `changed`.
    """
    sides = mirror.groupBy("partition", "offset").agg(F.min("hash").alias("low"), F.max("hash").alias("high"))
    joined = sides.join(kafka.select("partition", "offset", "hash"), on=["partition", "offset"], how="full_outer")
    # What stands twice with different bytes is told as that; here one of them must be Kafka's.
    same = (F.col("hash") == F.col("low")) | (F.col("hash") == F.col("high"))
    kind = F.when(F.col("low").isNull(), "held").when(F.col("hash").isNull(), "extra").when(~same, "changed")
    return joined.select("partition", "offset", kind.alias("kind")).where(F.col("kind").isNotNull())


def runs(places: DataFrame) -> DataFrame:
    """Return single offsets as ranges: `partition`, `start` and `end`."""
    in_order = Window.partitionBy("partition").orderBy("offset")
    numbered = places.select("partition", "offset", (F.col("offset") - F.row_number().over(in_order)).alias("run"))
    bounds = [F.min("offset").alias("start"), (F.max("offset") + 1).alias("end")]
    return numbered.groupBy("partition", "run").agg(*bounds).select("partition", "start", "end")
