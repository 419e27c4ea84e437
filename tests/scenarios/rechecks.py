"""Outputs that grow between checks: a check that goes on from the last one against one that reads all."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output
from rewind.adapters.delta_output import Write
from rewind.adapters.sinks import sink_of
from rewind.core.horizon import Frontier
from rewind.core.model import Generation, Topic
from rewind.core.offsets import OffsetRange, Ranges, ends, starts, total
from rewind.core.pipeline import DELTA, KAFKA, Pipeline
from rewind.core.settings import Settings
from rewind.registry import check_results
from rewind.registry.check_results import Checked
from rewind.runtime import tables
from rewind.runtime.kafka.broker import Broker
from rewind.steps.compare import comparison, findings, resumed
from rewind.steps.compare.findings import Found
from rewind.steps.generation.logic import empty_records
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding
from rewind.transforms.records.headers import Stamp
from tests.support import cuts, fakes
from tests.support.fakes import TOPIC_ID

PIPELINE = cuts.shipped("visits_converter", required=("event_id",))
PARTITIONS = 3
SCHEMA = "event_identifier STRING, visit_identifier BIGINT, event_time TIMESTAMP, visited_page STRING"
LIVE, CANDIDATE = 0, 1


def value(offset: int, page: str) -> bytes:
    body = {"event_id": f"click-{offset}", "visit_id": offset, "event_time": "2025-09-04T07:00:00", "page": page}
    return json.dumps(body).encode()


class Pair:
    """A live job and a candidate of one pipeline, whose outputs are written by the product's own sinks."""

    def __init__(self, spark: SparkSession, settings: Settings, form: str = DELTA, name: str = "again") -> None:
        """Make both outputs, empty."""
        self.spark, self.settings = spark, settings
        self.pipeline: Pipeline = replace(PIPELINE, name=name, output_topic=f"{name}-out", output_format=form)
        self.jobs = tuple(self._made(number) for number in (1, 2))
        self._writes = [0, 0]

    def _made(self, number: int) -> Generation:
        job = fakes.generation(self.pipeline, number, state="live" if number == 1 else "candidate")
        job = replace(job, frozen={**job.frozen, "output_schema": SCHEMA}, start=dict.fromkeys(range(PARTITIONS), 0))
        if self.pipeline.output_format == KAFKA:
            like = Topic("", "", {}, {})
            for name in (job.output_topic, job.dead_letter_topic):
                Broker(self.settings).create_topic(name, like, PARTITIONS, "delete")
            return job
        rows, dead = (str(tables.path(self.settings, name)) for name in (job.output_topic, job.dead_letter_topic))
        tables.mark(self.settings, job.output_topic, delta_output.create(self.spark, rows, SCHEMA))
        tables.mark(self.settings, job.dead_letter_topic, delta_output.create_dead(self.spark, dead))
        return job

    def write(self, side: int, records: DataFrame) -> None:
        """Process source records and write what comes out."""
        job, pipeline = self.jobs[side], self.pipeline
        logic = _logic
        made = contract.examine(logic, pipeline, empty_records(self.spark))
        stamp = Stamp(job.job_id, 1, TOPIC_ID, job.output_topic, job.dead_letter_topic)
        encoded = encoding.encode(records, logic, pipeline, made, stamp)
        number = self._writes[side]
        sink_of(self.settings, job, pipeline).write(encoded, Write(f"{job.job_id}-stream", number, number, {}))
        self._writes[side] += 1

    def records(self, rows: Sequence[tuple[int, int, bytes]]) -> DataFrame:
        """Return source records by partition, offset and value."""
        found = [(b"k", text, [], "visits", p, o, None) for p, o, text in rows]
        return self.spark.createDataFrame(found, empty_records(self.spark).schema)

    def stretch(self, first: int, last: int, page: str) -> DataFrame:
        """Return the records of some offsets of all partitions, their page an SQL expression over `offset`."""
        spread = self.spark.range(first, last).crossJoin(self.spark.range(PARTITIONS).withColumnRenamed("id", "p"))
        offset = F.col("id")
        body = F.struct(
            F.concat(F.lit("click-"), offset).alias("event_id"),
            offset.alias("visit_id"),
            F.lit("2025-09-04T07:00:00").alias("event_time"),
            F.expr(page.replace("offset", "id")).alias("page"),
        )
        columns = [F.lit(b"k").alias("key"), F.to_json(body).cast("binary").alias("value")]
        source = [F.lit("visits").alias("topic"), F.col("p").cast("int").alias("partition"), offset.alias("offset")]
        nothing = F.lit(None).cast("timestamp").alias("timestamp")
        headers = F.array().cast("array<struct<key:string,value:binary>>").alias("headers")
        return spread.select(*columns, headers, *source, nothing)

    def whole(self, horizon: Ranges) -> Found:
        return comparison.compared(self.spark, self.settings, *self.jobs, horizon)

    def again(self, horizon: Ranges, before: Checked | None) -> Found | None:
        """Return what a check finds that goes on from another; None when it has to read all."""
        went_on = resumed.go_on(self.spark, self.settings, *self.jobs, horizon, before)
        return None if went_on is None else went_on.found

    def checked(self, horizon: Ranges, found: Found, attempt: int) -> Checked:
        frontier = Frontier(ends(horizon), found.unread, 0, found.ends)
        of = check_results.identity(*self.jobs, 1)
        return Checked(attempt, of, starts(horizon), frontier, found.counts, found.fields, found.sample, None)


def _logic(records: DataFrame) -> DataFrame:
    return records.selectExpr(
        "event_id AS event_identifier", "visit_id AS visit_identifier", "event_time", "page AS visited_page", "_src"
    )


@dataclass
class _Round:
    """What one round writes, and whether it touches what was judged."""

    rows: tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]] = field(default_factory=lambda: ([], []))
    touched: bool = False


def history(pair: Pair, rounds: int, seed: int) -> dict[str, int]:
    """Let both outputs grow by chance, and hold each check that goes on against one that reads all."""
    chance, at = random.Random(seed), [[0] * PARTITIONS, [0] * PARTITIONS]
    before, told = None, {"went_on": 0, "read_whole": 0, "differences": 0}
    for number in range(rounds):
        made = _drawn(chance, at, before)
        for side in (LIVE, CANDIDATE):
            pair.write(side, pair.records(made.rows[side]))
        horizon = {p: OffsetRange(0, min(at[LIVE][p], at[CANDIDATE][p])) for p in range(PARTITIONS)}
        whole, found = pair.whole(horizon), pair.again(horizon, before)
        assert (found is None) == (before is None or made.touched), (seed, number)
        if found is not None:
            assert dict(found.counts) == dict(whole.counts), (seed, number)
            assert _plain(found.fields) == _plain(whole.fields), (seed, number)
            assert {s["offset"] for s in found.sample} <= {s["offset"] for s in whole.sample} or len(whole.sample) == 20
        told["went_on" if found is not None else "read_whole"] += 1
        before = pair.checked(horizon, found or whole, number)
    told["differences"] = sum(whole.counts[name] for name in findings.BAD if name in whole.counts)
    return told


def _plain(fields: Any) -> dict[str, dict[str, int]]:
    return {name: dict(found) for name, found in fields.items() if found}


def _drawn(chance: random.Random, at: list[list[int]], before: Checked | None) -> _Round:
    made = _Round()
    for side in (LIVE, CANDIDATE):
        for p in range(PARTITIONS):
            first, last = at[side][p], at[side][p] + chance.randrange(0, 9)
            made.rows[side].extend(_row(chance, side, p, offset) for offset in range(first, last))
            at[side][p] = last
            if last > first and chance.random() < 0.1:
                # Within a batch that was tried twice: no check came between.
                made.rows[side].append((p, last - 1, value(last - 1, "home")))
            judged = 0 if before is None else before.frontier.ceiling.get(p, 0)
            if judged and chance.random() < 0.02:
                made.rows[side].append((p, chance.randrange(judged), value(0, "late")))
    dropped = [row for row in made.rows[CANDIDATE] if chance.random() < 0.05]
    for row in dropped:
        made.rows[CANDIDATE].remove(row)
    made.touched = any(_touches(row, before) for rows in made.rows for row in rows)
    return made


def _touches(row: tuple[int, int, bytes], before: Checked | None) -> bool:
    return before is not None and row[1] < before.frontier.ceiling.get(row[0], 0)


def _row(chance: random.Random, side: int, partition: int, offset: int) -> tuple[int, int, bytes]:
    if chance.random() < 0.08:
        return partition, offset, b"no JSON" if chance.random() < 0.5 else value(offset, f"page-{side}")
    return partition, offset, value(offset, "home")


def one_percent(pair: Pair, offsets: int) -> dict[str, object]:
    """Check outputs of many rows, let both grow by one in a hundred, check again, and return how much that read."""
    page, more = "if(offset % 1000 = 7, concat('p', offset), 'home')", offsets // 100
    for side, pages in ((LIVE, "'home'"), (CANDIDATE, page)):
        pair.write(side, pair.stretch(0, offsets, pages))
    horizon = {p: OffsetRange(0, offsets) for p in range(PARTITIONS)}
    first = pair.whole(horizon)
    changed = PARTITIONS * len(range(7, offsets, 1000))
    assert (first.counts["rows"], first.counts["changed"]) == (PARTITIONS * offsets, changed)
    before = pair.checked(horizon, first, 1)
    for side, pages in ((LIVE, "'home'"), (CANDIDATE, page)):
        pair.write(side, pair.stretch(offsets, offsets + more, pages))
    grown = {p: OffsetRange(0, offsets + more) for p in range(PARTITIONS)}
    found, whole = pair.again(grown, before), pair.whole(grown)
    assert found is not None
    assert dict(found.counts) == dict(whole.counts)
    assert _plain(found.fields) == _plain(whole.fields)
    read = _read(found.ends, before.frontier.unread)
    return {"rows": 2 * total(grown), "read_again": read, "share_read_again": f"{read / (2 * total(grown)):.2%}"}


def _read(ends_of: Any, unread: Any) -> int:
    """Return how many offsets of the outputs lie from where a check left off up to their ends."""
    return sum(end - unread.get(topic, {}).get(p, 0) for topic, known in ends_of.items() for p, end in known.items())
