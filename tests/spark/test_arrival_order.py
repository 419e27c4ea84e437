"""History is fed in the order of its arrival, whatever the times of the mirror's files say (case C03)."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import feed, mirror
from rewind.adapters.session import _STATE
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.planning import chunks

TOPIC = "T"
DAY = "2025-09-04"
WHOLE = {0: OffsetRange(0, 10), 1: OffsetRange(0, 10)}


def records(spark: SparkSession, partition: int, hour: int) -> DataFrame:
    """Return ten records of a partition, a minute apart, that arrived when they happened."""
    begin = datetime(2025, 9, 4, hour, tzinfo=UTC)
    times = [begin + timedelta(minutes=n) for n in range(10)]
    rows = [
        (partition, n, at, 0, "visits", None, json.dumps({"at": at.isoformat()}).encode(), [])
        for n, at in enumerate(times)
    ]
    return spark.createDataFrame(rows, FIELDS)


FIELDS = (
    "partition int, offset long, timestamp timestamp, timestamp_type int, topic string, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session with the settings of a query with state."""
    own = spark.newSession()
    for name, value in {**_STATE, "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}.items():
        own.conf.set(name, value)
    return own


@pytest.fixture
def stateful(spark: SparkSession) -> SparkSession:
    return own_session(spark)


@pytest.fixture(scope="module")
def template(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mirror of which each test gets a copy."""
    return reversed_mirror(own_session(session), str(tmp_path_factory.mktemp("template")))


@pytest.fixture
def mirrored(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "mirror"))


def reversed_mirror(session: SparkSession, path: str) -> str:
    """Make a mirror whose first commit holds what arrived last."""
    mirror.create(session, path)
    for batch, (partition, hour) in enumerate(((0, 12), (1, 10))):
        options = {"application": "m", "batch": batch, "metadata": ""}
        mirror.append(records(session, partition, hour), path, TOPIC, DAY, **options)
    return path


def cut(session: SparkSession, path: str, version: int, size: int) -> list[Ranges]:
    return chunks.by_arrival(WHOLE, feed.arrivals(session, path, version, WHOLE, TOPIC), size)


def counted(session: SparkSession, path: str, version: int, home: Path, cut_: list[Ranges]) -> dict[str, int]:
    """Feed the chunks to a count by five minutes with a watermark of ten, and return the newest counts."""
    place, found = str(home / "feed"), {}
    feed.create(session, place)
    for number, ranges in enumerate(cut_):
        rows = mirror.read(session, path, version).where(mirror.in_ranges(ranges, TOPIC))
        feed.append(rows, place, "counter-g2", number)

    def write(rows: DataFrame, _batch: int) -> None:
        found.update({row["window"]["start"].strftime("%H:%M"): row["count"] for row in rows.collect()})

    at = F.get_json_object(F.col("value").cast("string"), "$.at").cast("timestamp").alias("at")
    timed = feed.stream(session).load(place).select(at).withWatermark("at", "10 minutes")
    query = timed.groupBy(F.window("at", "5 minutes")).count().writeStream.outputMode("update").foreachBatch(write)
    query.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    return found


FIVE_EACH = {"10:00": 5, "10:05": 5, "12:00": 5, "12:05": 5}


@pytest.mark.shows("stateful", c03_windows=FIVE_EACH)
def test_c03_what_arrived_first_is_fed_first_and_nothing_is_late(
    stateful: SparkSession, mirrored: str, tmp_path: Path
) -> None:
    made = cut(stateful, mirrored, 2, 5)
    assert [{p: (r.start, r.end) for p, r in chunk.items()} for chunk in made] == [
        {0: (0, 0), 1: (0, 5)},
        {0: (0, 0), 1: (5, 10)},
        {0: (0, 5), 1: (10, 10)},
        {0: (5, 10), 1: (10, 10)},
    ]
    assert counted(stateful, mirrored, 2, tmp_path / "rewind", made) == FIVE_EACH


@pytest.mark.full
@pytest.mark.shows("stateful", c03_windows_after_a_compaction=FIVE_EACH)
def test_c03_a_compaction_changes_nothing(stateful: SparkSession, mirrored: str, tmp_path: Path) -> None:
    before = cut(stateful, mirrored, 2, 5)
    mirror.compact(stateful, mirrored, DAY, 100)
    assert cut(stateful, mirrored, 3, 5) == before
    assert counted(stateful, mirrored, 3, tmp_path / "rewind", before) == FIVE_EACH


def test_c03_in_the_order_of_the_files_the_earlier_ones_would_be_lost(
    stateful: SparkSession, mirrored: str, tmp_path: Path
) -> None:
    halves = [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]
    by_file: list[Ranges] = [{p: OffsetRange(first, end)} for p, first, end in halves]
    assert counted(stateful, mirrored, 2, tmp_path / "by_file", by_file) == {"12:00": 5, "12:05": 5}
