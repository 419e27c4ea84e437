"""The same drawn records in drawn batches: a logic that is proved row-wise must give the same rows of each cut."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.core.pipeline import Pipeline
from rewind.steps.generation.logic import empty_records
from rewind.transforms.logic import contract
from rewind.transforms.values import parsing
from rewind.transforms.values.parsing import REASON, SRC

BEGIN = datetime(2025, 9, 4, 7, tzinfo=UTC)
PARTITIONS = 2
MOST_BATCHES = 3

Record = tuple[Any, ...]
"""A source record: `parsing.SOURCE_COLUMNS`."""


def records(drawn: random.Random, count: int) -> list[Record]:
    """Return source records in the order of their arrival, some of them tombstones, some no records at all."""
    offsets: Counter[int] = Counter()
    made = []
    for _ in range(count):
        partition = drawn.randrange(PARTITIONS)
        at = BEGIN + timedelta(seconds=drawn.randrange(3600))
        made.append((b"k", _value(drawn), [], "logics-in", partition, offsets[partition], at))
        offsets[partition] += 1
    return made


def _value(drawn: random.Random) -> bytes | None:
    kind = drawn.random()
    if kind < 0.1:
        return None if kind < 0.05 else b'{"id": 1} and more'
    at = BEGIN + timedelta(minutes=drawn.randrange(3000))
    fields = {
        "id": drawn.randrange(12),
        "kind": drawn.choice(["a", "b", "c", "2025-09-04", "17"]),
        "amount": drawn.randrange(-1000, 10_000) / 100,
        "at": at.isoformat(),
        "day": at.date().isoformat(),
        "tags": [drawn.choice("xyz") for _ in range(drawn.randrange(4))],
        "lines": [{"sku": drawn.choice("pq"), "n": drawn.randrange(4)} for _ in range(drawn.randrange(3))],
        "extras": {key: drawn.choice("uv") for key in drawn.sample("lmn", drawn.randrange(3))},
        "body": json.dumps({"n": drawn.randrange(90), "at": at.strftime("%Y-%m-%d %H:%M")}),
    }
    return json.dumps({name: value for name, value in fields.items() if drawn.random() > 0.1}).encode()


def parsed(spark: SparkSession, pipeline: Pipeline, seed: int, count: int) -> DataFrame:
    """Return drawn records as logic gets them; what is no record is there too, its columns null."""
    made = spark.createDataFrame(records(random.Random(seed), count), empty_records(spark).schema)
    return parsing.parse(made, pipeline).drop(REASON).coalesce(1).localCheckpoint()


def cut(drawn: random.Random, count: int) -> list[Column]:
    """Return the conditions of drawn batches: each partition is cut at offsets of its own; a batch may lack one."""
    batches = [F.lit(False)] * drawn.randint(2, MOST_BATCHES)
    for partition in range(PARTITIONS):
        ends = sorted(drawn.randint(0, count) for _ in batches[1:])
        for number, (first, end) in enumerate(zip([0, *ends], [*ends, count], strict=True)):
            within = (F.col(f"{SRC}.offset") >= first) & (F.col(f"{SRC}.offset") < end)
            batches[number] |= (F.col(f"{SRC}.partition") == partition) & within
    return batches


def differing(made: DataFrame, logic: contract.Logic, seed: int, cuts: int) -> set[int]:
    """Return in which of so many drawn cuts of parsed records a logic gave other rows than of one batch."""
    drawn, longest = random.Random(seed), made.agg(F.max(f"{SRC}.offset")).collect()[0][0] + 1
    drawn_cuts = [[F.lit(True)], *(cut(drawn, longest) for _ in range(cuts))]
    given = (
        logic(made.where(batch)).select(F.lit(number).alias("cut"), "*")
        for number, batches in enumerate(drawn_cuts)
        for batch in batches
    )
    found: dict[int, Counter[str]] = {number: Counter() for number in range(len(drawn_cuts))}
    for number, *row in reduce(DataFrame.unionAll, given).collect():
        found[number][repr(row)] += 1
    assert found[0]
    return {number for number, rows in found.items() if rows != found[0]}
