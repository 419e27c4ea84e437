"""Drawn values through what reads and writes them: equal to what the oracle says, or a dead letter with its reason."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import DELTA, Pipeline
from rewind.registry import generations
from rewind.runtime import tables
from rewind.steps.generation.logic import empty_records
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding
from rewind.transforms.records.headers import Stamp
from rewind.transforms.values import json_text, parsing
from tests.support import exact_draws
from tests.support.exact_oracle import Dead, came_out, expected, parsed
from tests.support.workshop import Workshop

STAMP = Stamp("x-g1", 1, "TOPIC", "out", "dead")
ZONE_OF_JOBS = "America/New_York"
UNREADABLE = "malformed, or a value of another type"
PASSED_ON = """from pyspark.sql import DataFrame


def transform(records: DataFrame) -> DataFrame:
    return records
"""


@dataclass(frozen=True)
class Form:
    """What a type is nested in: as DDL, as the oracle names it, and the JSON around a value."""

    ddl: Callable[[str], str]
    kind: Callable[[str], Any]
    text: str


FORMS = {
    "plain": Form(lambda leaf: leaf, lambda leaf: leaf, "{}"),
    "array": Form(lambda leaf: f"ARRAY<{leaf}>", lambda leaf: ("array", leaf), "[{},null]"),
    "struct": Form(
        lambda leaf: f"STRUCT<`f.g`: {leaf}, h: INT>",
        lambda leaf: ("struct", {"f.g": leaf, "h": "INT"}),
        '{{"f.g":{}}}',
    ),
    "map": Form(lambda leaf: f"MAP<STRING, {leaf}>", lambda leaf: ("map", leaf), '{{"k":{}}}'),
    "deep": Form(
        lambda leaf: f"ARRAY<STRUCT<m: MAP<STRING, {leaf}>>>",
        lambda leaf: ("array", ("struct", {"m": ("map", leaf)})),
        '[{{"m":{{"k":{}}}}}]',
    ),
}


@dataclass(frozen=True)
class Given:
    """A record with one value: its column, its type as the oracle names it, the JSON text of the value."""

    name: str
    kind: Any
    value: str

    @property
    def record(self) -> str:
        return f'{{"{self.name}":{self.value}}}'


def outcome(spark: SparkSession, schema: str, *texts: str, exact: bool = True, **declared: Any) -> list[str]:
    """Return the JSON text that becomes of each record, or why it is rejected."""
    pipeline = Pipeline("x", "t", schema, "o", exact=exact, **declared)
    rows = [(b"k", text.encode(), [], "t", 0, n, None) for n, text in enumerate(texts)]
    read = parsing.parse(spark.createDataFrame(rows, empty_records(spark).schema), pipeline)
    text = json_text.of_columns(parsing.declared(schema).fields, exact)
    told = read.select(f"{parsing.SRC}.offset", F.coalesce(parsing.REASON, text).alias("told"))
    return [row["told"] for row in sorted(told.collect(), key=lambda row: row["offset"])]


def drawn(spark: SparkSession, form: str, zone: str, draw: random.Random, many: int) -> Counter[str]:
    """Hold `many` values of each type against the oracle; return how many were kept and how many dead."""
    schema, given = _given(form, draw, many)
    spark.conf.set("spark.sql.session.timeZone", zone)
    told = outcome(spark, schema, *(one.record for one in given))
    # What is written is read as the same.
    again = outcome(spark, schema, *(answer if answer.startswith("{") else "{}" for answer in told))
    assert [answer for answer in again if answer != "{}"] == [a for a in told if a.startswith("{") and a != "{}"]
    return Counter(_held(one, answer, zone) for one, answer in zip(given, told, strict=True))


def through_outputs(
    spark: SparkSession, folder: Path, form: str, zone: str, draw: random.Random, many: int
) -> Counter[str]:
    """Hold `many` values of each type against the oracle, through logic to a row of Kafka and of a Delta table."""
    schema, given = _given(form, draw, many)
    spark.conf.set("spark.sql.session.timeZone", zone)
    pipeline = Pipeline("x", "t", schema, "o", session_time_zone=zone)
    rows = [(b"k", one.record.encode(), [], "t", 0, n, None) for n, one in enumerate(given)]
    made = contract.examine(lambda records: records, pipeline, empty_records(spark))
    frame = spark.createDataFrame(rows, empty_records(spark).schema)
    encoded = encoding.encode(frame, lambda records: records, pipeline, made, STAMP).persist()
    path = str(folder / f"{form}-{zone.replace('/', '-')}")
    delta_output.create(spark, path, schema)
    write = delta_output.Write("x-g1-stream-q1", 0, 0, {0: OffsetRange(0, len(rows))})
    delta_output.write(encoded.where(F.col("topic") == "out"), path, write)
    of_kafka = dict(_located(encoded.where(F.col("topic") == "out").drop("fields").collect()))
    of_table = dict(_located(delta_output.read(spark, path, 0, 1, parsing.declared(schema)).collect()))
    dead = dict(_reasons(encoded.where(F.col("topic") == "dead").drop("fields").collect()))
    encoded.unpersist()
    assert of_table == of_kafka
    assert not of_kafka.keys() & dead.keys()
    told = {**of_kafka, **dead}
    return Counter(_held(one, told[n], zone) for n, one in enumerate(given))


def through_jobs(
    workshop: Callable[..., Workshop], spark: SparkSession, draw: random.Random, many: int
) -> Counter[str]:
    """Hold `many` values against the oracle, through a stream, a repair and a backfill, to topics and to tables."""
    forms = [FORMS[name] for name in ("plain", "struct", "deep")]
    columns = [(f"c{n}_{m}", form, leaf) for n, leaf in enumerate(exact_draws.LEAVES) for m, form in enumerate(forms)]
    schema = ", ".join(f"{name} {form.ddl(leaf)}" for name, form, leaf in columns)
    given = [_of(*draw.choice(columns), draw) for _ in range(many)]
    spark.conf.set("spark.sql.session.timeZone", ZONE_OF_JOBS)
    counts: Counter[str] = Counter()
    for form in ("topic", "table"):
        shop = _shop(workshop, f"values_{form}", form, schema)
        shop.produce(*((None, one.record.encode()) for one in given))
        jobs = [shop.deploy()]
        for owner in (jobs[0], shop.mirror):
            shop.start(owner)
            shop.caught_up(owner)
            shop.stop(owner)
        counts.update(_told_by(shop, spark, jobs[0], given, schema))
        end = json.dumps({shop.topic: {"0": many}})
        for number, asked in enumerate(({"to": end, "repair_into": "beside"}, {"same_code": True}), 1):
            rewind = f"rw-{form}-{number}"
            plan = shop.planned(rewind, **asked)
            shop.step("spin_up", rewind)
            shop.step("backfill", rewind)
            counts.update(_told_by(shop, spark, plan.job_id, given, schema))
            shop.abort(rewind, "all of it is read")
    return counts


def _told_by(shop: Workshop, spark: SparkSession, job_id: str, given: list[Given], schema: str) -> Counter[str]:
    """Hold all that a job wrote against the oracle: of each record one row, or one dead letter."""
    with shop.registry() as connection:
        job = generations.read(connection, job_id)
    if shop.declared().output_format == DELTA:
        places = [str(tables.path(shop.settings, name)) for name in (job.output_topic, job.dead_letter_topic)]
        end = delta_output.STREAM_ORDINAL << 1
        rows, dead = (
            delta_output.read(spark, place, 0, end, of).collect()
            for place, of in zip(places, (parsing.declared(schema), None), strict=True)
        )
        found = [*_located(rows), *_reasons(dead)]
    else:
        found = [(_source(r.headers), (r.value or b"").decode()) for r in shop.read(job.output_topic)]
        found += [(_source(r.headers), r.headers["rewind-reason"]) for r in shop.read(job.dead_letter_topic)]
    told = dict(found)
    assert len(told) == len(found) == len(given), job_id
    return Counter(_held(one, told[n], ZONE_OF_JOBS) for n, one in enumerate(given))


def _located(rows: Iterable[Row]) -> list[tuple[int, str]]:
    return [(_source(_headers(row)), bytes(row["value"]).decode()) for row in rows]


def _reasons(rows: Iterable[Row]) -> list[tuple[int, str]]:
    return [(_source(headers), headers["rewind-reason"]) for headers in map(_headers, rows)]


def _headers(row: Row) -> dict[str, str]:
    return {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}


def _source(headers: Mapping[str, str]) -> int:
    """Return the offset of a row's record."""
    return int(headers["rewind-source"].split(":")[2])


def _given(form: str, draw: random.Random, many: int) -> tuple[str, list[Given]]:
    """Return a schema with a column of each type, and `many` records of each."""
    kinds = {f"c{n}": leaf for n, leaf in enumerate(exact_draws.LEAVES)}
    given = [_of(name, FORMS[form], leaf, draw) for name, leaf in kinds.items() for _ in range(many)]
    return ", ".join(f"{name} {FORMS[form].ddl(leaf)}" for name, leaf in kinds.items()), given


def _shop(workshop: Callable[..., Workshop], name: str, form: str, schema: str) -> Workshop:
    source = {"topic": f"{name}-in", "schema": schema}
    shop = workshop(name, 1, form=form, source=source, session_time_zone=ZONE_OF_JOBS)
    (shop.settings.pipelines / name / "logic.py").write_text(PASSED_ON)
    return shop


def _of(name: str, form: Form, leaf: str, draw: random.Random) -> Given:
    return Given(name, form.kind(leaf), form.text.format(exact_draws.of(leaf, draw)))


def _held(given: Given, answer: str, zone: str) -> str:
    """Hold what became of a record against the oracle; return `kept` or `dead`."""
    try:
        wanted = expected(given.kind, parsed(given.value), zone)
    except Dead:
        assert answer == UNREADABLE or answer.startswith((given.name, "holds half")), (given, answer)
        return "dead"
    assert answer.startswith("{"), (given, answer)
    assert came_out(given.kind, dict(parsed(answer)).get(given.name)) == wanted, (given, answer)
    return "kept"
