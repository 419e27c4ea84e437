"""Jobs with state over records that a test cuts into batches as it wants: real queries and tables, no broker."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import checkpoint, delta_output, feed, outputs
from rewind.adapters.session import beside
from rewind.core import coordinates, lifecycle
from rewind.core.model import Batch, Generation
from rewind.core.offsets import OffsetRange, Ranges, between, total
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.settings import Settings
from rewind.declared import pipelines
from rewind.registry import generations, progress
from rewind.registry.database import now, writing
from rewind.runtime import tables
from rewind.runtime.drivers import supervise
from rewind.steps.compare import comparison
from rewind.steps.compare.findings import Found
from rewind.steps.feed import feeding
from rewind.steps.generation import query
from rewind.steps.generation.allocate import examined
from rewind.transforms.comparing import keyed
from tests.support import fakes
from tests.support.fakes import TOPIC_ID

FOLDER = Path(__file__).resolve().parents[2] / "include" / "pipelines"
FIELDS = (
    "partition int, offset long, timestamp timestamp, timestamp_type int, topic string, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
Value = Mapping[str, Any] | bytes
Arrival = tuple[int, Value]
"""A source partition, and the value of the next record there: fields, or bytes that are no such thing."""
PARTITIONS = 2


def shipped(name: str, **changes: Any) -> Pipeline:
    """Return a pipeline of the checkout, its output a table."""
    return replace(pipelines.load(FOLDER, name), output_format=DELTA, **changes)


def own_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """Return a session with the settings of a query with state: they must not reach other tests."""
    return beside(spark, pipeline, PARTITIONS, 2)


def at(text: str) -> str:
    """Return an instant of the documents' day, `07:05` or `07:05:30.250` in UTC, as an event carries it."""
    return f"2025-09-04T{text}:00Z" if len(text) == 5 else f"2025-09-04T{text}Z"


def millis(text: str) -> int:
    """Return the same instant in milliseconds since 1970."""
    return int(datetime.fromisoformat(at(text)).timestamp() * 1000)


def cut(arrivals: Sequence[Arrival], batches: int) -> list[Sequence[Arrival]]:
    """Return the records in so many batches, in the order of their arrival."""
    ends = [len(arrivals) * n // batches for n in range(batches + 1)]
    return [arrivals[first:end] for first, end in itertools.pairwise(ends)]


_FOLDERS = tempfile.TemporaryDirectory(prefix="tables-")
_MADE: dict[str, Any] = {}


def _once(key: str, make: Callable[[], Any]) -> Any:
    """Return what was made for a key, made now if it is the first time: it would be the same each time."""
    if key not in _MADE:
        _MADE[key] = make()
    return _MADE[key]


def _table(key: str, create: Callable[[str], Any]) -> tuple[str, Any]:
    """Return an empty table to be copied, and what making it gave: a commit takes a second."""

    def make() -> tuple[str, Any]:
        path = tempfile.mkdtemp(dir=_FOLDERS.name)
        return path, create(path)

    return _once(f"table {key}", make)  # type: ignore[no-any-return]


@dataclass
class Job:
    """One generation of a pipeline with state, fed by hand; what it writes goes to tables.

    Attributes:
        spark: A session of its own (`own_session`).
        settings: An installation.
        pipeline: Its pipeline.
        number: Its number: 1 is live, all else a candidate.
        start: First offset of each partition.
        trusted_from: From when on its results are whole.
    """

    spark: SparkSession
    settings: Settings
    pipeline: Pipeline
    number: int = 1
    start: Mapping[int, int] | None = None
    trusted_from: int | None = None

    def __post_init__(self) -> None:
        """Record the generation and make its tables."""
        begin = dict(self.start or dict.fromkeys(range(PARTITIONS), 0))
        job, base = f"{self.pipeline.name}-g{self.number}", f"{self.pipeline.output_topic}-g{self.number}"
        seen = _once(f"examined {self.pipeline}", lambda: examined(self.spark, self.pipeline))
        frozen = {
            "config": self.pipeline.frozen(),
            "output_schema": seen.schema,
            "state": list(seen.state),
            "partitions": PARTITIONS,
            "epoch": self.number,
            "trusted_from": self.trusted_from,
        }
        state = lifecycle.CANDIDATE
        self.generation = Generation(
            job, self.pipeline.name, state, TOPIC_ID, "b", frozen, begin, begin, base, f"{base}-dead"
        )
        with writing(self.settings.registry_url) as connection:
            generations.create(connection, self.generation, None)
            if self.number == 1:
                generations.set_first(connection, job)
        results = _table(seen.schema, lambda path: delta_output.create(self.spark, path, seen.schema))
        dead = _table("dead letters", lambda path: delta_output.create_dead(self.spark, path))
        for name, (made, table_id) in {base: results, f"{base}-dead": dead}.items():
            shutil.copytree(made, tables.path(self.settings, name))
            tables.mark(self.settings, name, table_id)
        self.feed = feeding.feed_path(self.settings, job)
        self.checkpoint = str(supervise.checkpoint_folder(self.settings, job))
        shutil.copytree(_table("feed", lambda path: feed.create(self.spark, path))[0], self.feed)
        self.ranges: list[Ranges] = []
        self._position = begin

    def read(self, *batches: Sequence[Arrival]) -> None:
        """Read the next records, one micro-batch a sequence, until nothing is left; record each batch."""
        for arrivals in batches:
            rows, end = self._rows(arrivals)
            feed.append(rows, self.feed, self.generation.job_id, len(self.ranges))
            self.ranges.append(between(self._position, end))
            self._position = end
        running = query.query_of(self.spark, self.settings, self.generation, self.pipeline, 1)

        def write(rows: DataFrame, number: int) -> None:
            ranges = self._ranges(number)

            def records(active: SparkSession) -> DataFrame | None:
                return feed.records(active, self.feed, self._consumed(number - 1)) if total(ranges) else None

            query_id = checkpoint.query_id(self.spark, self.checkpoint)
            running.write(rows, query.Batch(number, query_id, ranges), records)

        writer = running.over(feed.stream(self.spark).load(self.feed)).foreachBatch(write)
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
        self._record()

    def _rows(self, arrivals: Sequence[Arrival]) -> tuple[DataFrame, dict[int, int]]:
        position, rows = dict(self._position), []
        for partition, value in arrivals:
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            place = (partition, position[partition], now(), 0, self.pipeline.source_topic)
            rows.append((*place, None, body, []))
            position[partition] += 1
        return self.spark.createDataFrame(rows, FIELDS), position

    def _ranges(self, number: int) -> Ranges:
        """Return what a batch reads: a chunk of the feed, or nothing."""
        read = [self._consumed(batch) for batch in (number - 1, number)]
        return self.ranges[read[0]] if read[1] > read[0] else {}

    def _consumed(self, number: int) -> int:
        logged = checkpoint.logged(self.spark, self.checkpoint, number) if number >= 0 else None
        return 0 if logged is None else feed.consumed(logged.end)

    def _record(self) -> None:
        last = checkpoint.last_committed(self.spark, self.checkpoint)
        assert last is not None
        position = dict(self.generation.start)
        for number in range(last + 1):
            ranges = self._ranges(number)
            logged = checkpoint.logged(self.spark, self.checkpoint, number)
            assert logged is not None
            end = {**position, **{p: r.end for p, r in ranges.items()}}
            late = checkpoint.late_watermark(self.spark, self.checkpoint, number)
            batch = Batch(number, position, end, total(ranges), now(), late, logged.watermark)
            with writing(self.settings.registry_url) as connection:
                progress.record(connection, self.generation.job_id, 1, batch)
            position = end

    def copied(self, settings: Settings) -> Job:
        """Return the same job in a copy of its installation."""
        folder, feeds = supervise.checkpoint_folder, feeding.feed_path
        places = {"feed": feeds(settings, self.generation.job_id), "ranges": list(self.ranges)}
        made = copy.copy(self)
        vars(made).update(places, settings=settings, checkpoint=str(folder(settings, self.generation.job_id)))
        return made

    @property
    def watermark(self) -> int:
        """The watermark by which its newest batch closed results, in milliseconds since 1970."""
        with writing(self.settings.registry_url) as connection:
            newest = progress.newest(connection, self.generation.job_id)
        assert newest is not None
        return newest.closing_watermark

    def newest(self, closed: bool = True) -> dict[str, dict[str, Any]]:
        """Return the newest version of each key of its output, of closed results alone unless said otherwise."""
        _, rows = outputs.read_keyed(self.spark, self.settings, self.generation)
        kept = keyed.newest(rows).where((F.col("ends") <= self.watermark) | F.lit(not closed))
        return {bytes(row["key"]).decode(): json.loads(bytes(row["value"])) for row in kept.collect()}

    def sources(self) -> list[tuple[str, str]]:
        """Return key and `rewind-source` of each row of its output."""
        path = str(tables.path(self.settings, self.generation.output_topic))
        rows = self.spark.read.format("delta").load(path)
        source = F.col(delta_output.HEADERS)[coordinates.SOURCE].alias("source")
        return [
            (bytes(row[delta_output.KEY]).decode(), row["source"].partition(":")[2])
            for row in rows.select(delta_output.KEY, source).collect()
        ]


class Lives:
    """Jobs of a pipeline that have read some batches: made once, and copied for each test that wants them."""

    def __init__(self, spark: SparkSession, fresh: Callable[[str], Path]) -> None:
        """Begin with none; `fresh` makes a folder."""
        self._spark = spark
        self._fresh = fresh
        self._made: dict[str, list[Job]] = {}

    def copied(self, home: Path, pipeline: Pipeline, *batches: Sequence[Sequence[Arrival]]) -> list[Job]:
        """Return live, and a candidate where there are batches for two, in an installation in `home`."""
        return copied(self._lived(pipeline, *batches), home)

    def _lived(self, pipeline: Pipeline, *batches: Sequence[Sequence[Arrival]]) -> list[Job]:
        key = repr((pipeline, batches))
        if key not in self._made:
            *earlier, mine = batches
            home = self._fresh("lives")
            made = copied(self._lived(pipeline, *earlier), home) if earlier else []
            settings = made[0].settings if made else fakes.installation(home)
            job = Job(own_session(self._spark, pipeline), settings, pipeline, len(batches))
            if mine:
                job.read(*mine)
            self._made[key] = [*made, job]
        return self._made[key]


def copied(made: Sequence[Job], home: Path) -> list[Job]:
    """Return the same jobs in a copy of their installation."""
    settings = fakes.copied(made[0].settings.home, home)
    return [job.copied(settings) for job in made]


def compared(live: Job, candidate: Job) -> Found:
    """Compare what two jobs wrote, as `validate` does."""
    with writing(live.settings.registry_url) as connection:
        ends = [progress.position(connection, job.generation.job_id, None) for job in (live, candidate)]
    floors = {p: max(job.generation.start[p] for job in (live, candidate)) for p in ends[0]}
    horizon = {p: OffsetRange(floor, max(floor, min(end[p] for end in ends))) for p, floor in floors.items()}
    bounds = comparison.bounds_of(live.settings, live.generation, candidate.generation)
    return comparison.compared(candidate.spark, live.settings, live.generation, candidate.generation, horizon, bounds)
