"""Kafka takes over from a feed under four conditions; each is held here with what happens without it.

A second Delta table plays Kafka: what matters is that another source, by another name, goes on in the same checkpoint.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import checkpoint, feed
from rewind.adapters.session import _STATE
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.settings import Settings
from rewind.steps.feed import feeding
from tests.support import cuts, fakes

JOB = "counter-g2"
UNFINISHED = "spark.sql.streaming.checkUnfinishedRepartitionOnRestart"


class Swap:
    """One checkpoint, a feed and what comes after it; the state is a count a user."""

    def __init__(self, spark: SparkSession, settings: Settings, home: Path, filled: Sequence[Path]) -> None:
        self.spark = spark
        self.settings = settings
        self.filled = filled
        self.feed = feeding.feed_path(settings, JOB)
        self.checkpoint = f"{settings.generations}/{JOB}/checkpoint"
        self.live = str(home / "live")
        for place in (self.feed, self.live):
            shutil.copytree(filled[0], place)
        self.counts: dict[str, int] = {}

    def records(self, first: int, count: int) -> DataFrame:
        return records(self.spark, first, count)

    def fill(self, chunks: int) -> None:
        """Put chunks of four records into the feed."""
        shutil.copytree(self.filled[chunks], self.feed, dirs_exist_ok=True)

    def arrive(self, first: int) -> None:
        """Let four records arrive where Kafka would be read."""
        feed.append(self.records(first, 4), self.live, "kafka", feed.chunks(self.spark, self.live))

    def run(self, source: str, fail_at: int | None = None) -> None:
        """Run the query over a source to its end; a batch may fail before it is committed."""

        def write(rows: DataFrame, batch: int) -> None:
            if batch == fail_at:
                raise RuntimeError("killed")
            self.counts |= {bytes(row["value"]).decode(): row["count"] for row in rows.collect()}

        if source == checkpoint.FEED:
            stream = feed.stream(self.spark).load(self.feed)
        else:
            options = {"startingVersion": "1", "maxFilesPerTrigger": "1"}
            stream = self.spark.readStream.name(source).format("delta").options(**options).load(self.live)
        writer = stream.groupBy("value").count().writeStream.outputMode("update").foreachBatch(write)
        writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start().awaitTermination()

    def check(self) -> None:
        feeding.check_swap(self.spark, self.settings, JOB)


def records(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Return as many records of two users, by turns."""
    rows = [(0, n, None, 0, "t", b"k", f"user-{n % 2}".encode(), []) for n in range(first, first + count)]
    return spark.createDataFrame(rows, cuts.FIELDS)


@pytest.fixture(scope="module")
def filled(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Feeds of 0 to 3 chunks of four records."""
    feeds = [tmp_path_factory.mktemp("filled") / str(chunks) for chunks in range(4)]
    feed.create(session, str(feeds[0]))
    for chunk, (before, after) in enumerate(itertools.pairwise(feeds)):
        shutil.copytree(before, after)
        feed.append(records(session, chunk * 4, 4), str(after), JOB, chunk)
    return feeds


@pytest.fixture
def swap(spark: SparkSession, tmp_path: Path, filled: list[Path]) -> Swap:
    # Settings of its own: they must not reach other tests.
    own = spark.newSession()
    for name, value in {**_STATE, "spark.sql.shuffle.partitions": "2"}.items():
        own.conf.set(name, value)
    return Swap(own, fakes.installation(tmp_path), tmp_path, filled)


def test_state_goes_on_from_one_source_to_the_other(swap: Swap) -> None:
    swap.fill(3)
    swap.run(checkpoint.FEED)
    swap.check()
    swap.arrive(12)
    swap.run(checkpoint.LIVE)
    assert swap.counts == {"user-0": 8, "user-1": 8}
    assert checkpoint.logged(swap.spark, swap.checkpoint, 3).source == checkpoint.LIVE


def test_before_anything_ran_there_is_nothing_to_check(swap: Swap) -> None:
    swap.check()


@pytest.mark.shows("stateful", swap_with_a_batch_that_is_not_committed="refused")
def test_1_a_batch_that_is_not_committed_forbids_the_swap(swap: Swap) -> None:
    swap.fill(3)
    with pytest.raises(StreamingQueryException, match="killed"):
        swap.run(checkpoint.FEED, fail_at=2)
    with pytest.raises(RefusedError, match=r"batch 2 of counter-g2's history is not committed \(.*: 1\)"):
        swap.check()

    swap.arrive(12)
    swap.run(checkpoint.LIVE)
    assert swap.counts == {"user-0": 6, "user-1": 6}, "Spark lets it pass, and the four records of the batch are lost"


@pytest.mark.shows("stateful", swap_with_a_feed_not_read_to_its_end="refused")
def test_1_a_feed_that_is_not_read_to_its_end_forbids_the_swap(swap: Swap) -> None:
    swap.fill(2)
    swap.run(checkpoint.FEED)
    feed.append(swap.records(8, 4), swap.feed, JOB, 2)
    with pytest.raises(RefusedError, match="has read 2 of the 3 chunks of its history"):
        swap.check()
    swap.run(checkpoint.FEED)
    swap.check()
    assert swap.counts == {"user-0": 6, "user-1": 6}


@pytest.mark.shows("stateful", swap_with_a_feed_that_was_never_read="refused")
def test_1_a_feed_that_was_filled_and_never_read_forbids_the_swap(swap: Swap) -> None:
    swap.fill(1)
    with pytest.raises(RefusedError, match="batch None of counter-g2's history is not committed"):
        swap.check()


@pytest.mark.shows("stateful", feed_once_kafka_was_read="never read again")
def test_2_once_kafka_was_read_the_feed_is_never_read_again(swap: Swap) -> None:
    swap.fill(2)
    swap.run(checkpoint.FEED)
    assert not feeding.taken_over(swap.spark, swap.checkpoint)
    swap.arrive(8)
    with pytest.raises(StreamingQueryException, match="killed"):
        swap.run(checkpoint.LIVE, fail_at=2)
    assert feeding.taken_over(swap.spark, swap.checkpoint), "a batch that was begun is enough"
    for first in (12, 16):
        swap.arrive(first)
    swap.run(checkpoint.LIVE)
    swap.check()
    assert swap.counts == {"user-0": 10, "user-1": 10}

    # A log of the last batches alone, as it is after a while.
    for log in ("offsets", "commits"):
        for batch in (0, 1):
            Path(swap.checkpoint, log, str(batch)).unlink()
            Path(swap.checkpoint, log, f".{batch}.crc").unlink()
    swap.run(checkpoint.FEED)
    assert swap.counts == {"user-0": 14, "user-1": 14}, "Spark reads the feed from its beginning, and counts it twice"


@pytest.mark.shows("stateful", **{"restart_on_an_open_batch_checked_{checked}": "true raises, false reads it once"})
@pytest.mark.parametrize("checked", ["true", "false"])
def test_3_a_restart_on_a_batch_that_is_not_committed(swap: Swap, checked: str) -> None:
    swap.fill(2)
    with pytest.raises(StreamingQueryException, match="killed"):
        swap.run(checkpoint.FEED, fail_at=1)
    assert swap.spark.conf.get(UNFINISHED) == "false"
    swap.spark.conf.set(UNFINISHED, checked)
    if checked == "true":
        with pytest.raises(Exception, match=r"None\.get"):
            swap.run(checkpoint.FEED)
    else:
        swap.run(checkpoint.FEED)
        assert swap.counts == {"user-0": 4, "user-1": 4}


@pytest.mark.shows("stateful", swap_chunks="a file and a batch each")
def test_4_a_chunk_is_one_file_and_a_batch_one_chunk(swap: Swap) -> None:
    feed.append(swap.records(0, 40).repartition(4), swap.feed, JOB, 0)
    feed.append(swap.records(40, 1), swap.feed, JOB, 1)
    swap.run(checkpoint.FEED)
    ends = [checkpoint.logged(swap.spark, swap.checkpoint, batch) for batch in (0, 1)]
    assert [feed.consumed(end.end) for end in ends if end] == [1, 2]


@pytest.mark.shows("stateful", swap_commit_of_several_files="refused, and a batch within one")
def test_4_a_commit_of_several_files_is_refused_and_so_is_a_batch_within_one(swap: Swap) -> None:
    options = {"txnAppId": f"{JOB}-feed", "txnVersion": "0"}
    several = swap.records(0, 40).repartition(4)
    several.write.format("delta").mode("append").options(**options).save(swap.feed)
    with pytest.raises(IntegrityError, match="version 1 is not chunk 0 in one file"):
        feed.append(swap.records(0, 40), swap.feed, JOB, 0)

    swap.run(checkpoint.FEED)
    first = checkpoint.logged(swap.spark, swap.checkpoint, 0)
    assert first is not None
    with pytest.raises(IntegrityError, match="a batch ends within a chunk"):
        feed.consumed(first.end)


def test_4_a_chunk_lands_once_however_often_it_is_tried(swap: Swap) -> None:
    for _ in range(2):
        feed.append(swap.records(0, 4), swap.feed, JOB, 0)
    assert (feed.chunks(swap.spark, swap.feed), swap.spark.read.format("delta").load(swap.feed).count()) == (1, 4)
    with pytest.raises(IntegrityError, match="is not chunk 0"):
        feed.append(swap.records(0, 4), swap.feed, "other-g1", 0)
