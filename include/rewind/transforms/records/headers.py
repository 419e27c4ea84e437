"""The headers that a job writes on each of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from rewind.core import coordinates
from rewind.transforms.values.parsing import SRC

_TYPE = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Stamp:
    """What a job writes on each of its rows.

    Attributes:
        job_id: The job.
        token: Its lease's token.
        topic_id: Id of its source topic.
        output_topic: Where rows go.
        dead_letter_topic: Where rejects go.
        repair: Number of the repair, 0 for a generation.
        epoch: First part of the versions of a stateful job's results.
    """

    job_id: str
    token: int
    topic_id: str
    output_topic: str
    dead_letter_topic: str
    repair: int = 0
    epoch: int = 0


def place(stamp: Stamp) -> Column:
    """Return the coordinate of the record that a row came from."""
    return F.concat_ws(":", F.lit(stamp.topic_id), F.col(f"{SRC}.partition"), F.col(f"{SRC}.offset"))


def span(stamp: Stamp) -> Column:
    """Return the spans of the records that went into a row: `topic-id:0:3-7,1:4-4`, both ends inclusive."""
    parts = F.transform(SRC, lambda s: F.concat_ws("-", F.concat_ws(":", s["partition"], s["first"]), s["last"]))
    return F.concat_ws(":", F.lit(stamp.topic_id), F.array_join(parts, ","))


def of_job(stamp: Stamp) -> list[tuple[str, Column]]:
    """Return what each row of a job carries, first of all."""
    return [(coordinates.JOB, F.lit(stamp.job_id)), (coordinates.TOKEN, F.lit(str(stamp.token)))]


def written(pairs: Sequence[tuple[str, Column]], reason: Column) -> Column:
    """Return the headers of a row in the sink's form, with the reason of a dead letter; null for none."""
    always = F.array(*(_header(name, value) for name, value in pairs)).cast(_TYPE)
    told = F.array(_header(coordinates.REASON, reason)).cast(_TYPE)
    return F.when(reason.isNotNull(), F.concat(always, told)).otherwise(always)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
