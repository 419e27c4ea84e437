"""A column that is null more often than live's fails the verdict, whatever change of it was declared (case C37)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output
from rewind.adapters.delta_output import Write
from rewind.adapters.sinks import sink_of
from rewind.core import lifecycle
from rewind.core.model import Generation
from rewind.core.offsets import OffsetRange
from rewind.core.settings import Settings
from rewind.runtime import tables
from rewind.steps.compare import compared_values, comparison, null_gate
from rewind.steps.compare.null_gate import Share
from rewind.steps.generation.logic import empty_records
from rewind.transforms.comparing import nulls
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding
from rewind.transforms.records.headers import Stamp
from rewind.transforms.values import parsing
from tests.support import cuts, fakes
from tests.support.cuts import Job, at
from tests.support.fakes import TOPIC_ID

pytestmark = pytest.mark.full

PIPELINE = cuts.shipped("visits_converter", required=("event_id",))
GOOD = '{"event_id": "v", "visit_id": %s, "event_time": "2025-09-04T07:00:00"%s}'
VALUES = [GOOD % pair for pair in [("7", "")] * 5 + [('"V-17"', "")] * 5 + [("7", ', "lang": "fr"')] * 5]
HORIZON = {0: OffsetRange(0, 15)}


def logic(*columns: str) -> contract.Logic:
    return lambda records: records.selectExpr("event_id", *columns, "_src")


NUMBER = ("event_id STRING, visit_id BIGINT", logic("visit_id"))
WITH_LANG = ("event_id STRING, visit_id BIGINT, lang STRING", logic("visit_id", "lang"))
CAST = ("event_id STRING, visit_id STRING", logic("try_cast(visit_id AS BIGINT) AS visit_id"))


def written(
    spark: SparkSession, settings: Settings, number: int, version: tuple[str, Callable[[DataFrame], DataFrame]]
) -> Generation:
    """Return a generation of a version of the pipeline that has read the case's fifteen records."""
    pipeline = replace(PIPELINE, schema=version[0])
    made = contract.examine(version[1], pipeline, empty_records(spark))
    ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in made.schema.fields)
    job = fakes.generation(pipeline, number)
    job = replace(job, frozen={**job.frozen, "output_schema": ddl})
    tables.mark(
        settings, job.output_topic, delta_output.create(spark, str(tables.path(settings, job.output_topic)), ddl)
    )
    dead = str(tables.path(settings, job.dead_letter_topic))
    tables.mark(settings, job.dead_letter_topic, delta_output.create_dead(spark, dead))
    rows = [(None, value.encode(), [], "visits", 0, n, None) for n, value in enumerate(VALUES)]
    records = spark.createDataFrame(rows, empty_records(spark).schema)
    stamp = Stamp(job.job_id, 1, TOPIC_ID, job.output_topic, job.dead_letter_topic)
    encoded = encoding.encode(records, version[1], pipeline, made, stamp)
    sink_of(settings, job, pipeline).write(encoded, Write(f"{job.job_id}-backfill", 0, 0, HORIZON))
    return job


def rows(spark: SparkSession, settings: Settings, name: str, *columns: str) -> list[tuple]:
    table = spark.read.format("delta").load(str(tables.path(settings, name)))
    offset = F.element_at(F.split(F.col("_headers")["rewind-source"], ":"), -1).cast("int").alias("o")
    return [tuple(row)[1:] for row in table.select(offset, *columns).orderBy("o").collect()]


def shares(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, *compared: Any
) -> dict[str, Share]:
    """Return the shares of nulls over what was compared: a horizon, and bounds of results or None."""
    values = compared_values.both(spark, settings, live, candidate, *compared)
    return null_gate.counted(values, live, candidate).shares()


@pytest.fixture(scope="module")
def versions(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, list[Generation]]:
    """An installation with a generation of each version of the pipeline."""
    settings = fakes.installation(tmp_path_factory.mktemp("versions"))
    declared = enumerate((NUMBER, WITH_LANG, CAST), 1)
    return settings, [written(session, settings, number, version) for number, version in declared]


@pytest.mark.shows("stateful", c37_share_of_nulls_live_and_candidate="0 % and 33.3 %: fails")
@pytest.mark.shows("verdict", c37_share_of_nulls_live_and_candidate="0 % and 33.3 %: fails")
def test_c37_a_field_that_changes_its_type(spark: SparkSession, versions: tuple[Settings, list[Generation]]) -> None:
    settings, (live, second, third) = versions
    # Of another type they are dead letters, not nulls; a field counts once it is declared.
    assert rows(spark, settings, live.output_topic, "visit_id") == [(7,)] * 10
    assert len(rows(spark, settings, live.dead_letter_topic, "_value")) == 5
    assert rows(spark, settings, second.output_topic, "visit_id", "lang") == [(7, None)] * 5 + [(7, "fr")] * 5

    equal = shares(spark, settings, live, second, HORIZON, None)
    assert equal == {"event_id": Share(0, 0), "visit_id": Share(0, 0)}
    assert null_gate.gated(lifecycle.PASS, "", equal, 0.01) == (lifecycle.PASS, "")
    found = shares(spark, settings, live, third, HORIZON, None)
    assert found == {"event_id": Share(0, 0), "visit_id": Share(0, 5 / 15)}
    told = "visit_id is null in 33.3%, in live in 0.0%"
    assert null_gate.gated(lifecycle.PASS, "", found, 0.01) == (lifecycle.FAIL, told)
    assert null_gate.gated(lifecycle.FAIL, "5 extra", found, 0.01) == (lifecycle.FAIL, f"5 extra; {told}")
    assert null_gate.gated(lifecycle.PASS, "", found, 0.34) == (lifecycle.PASS, "")


def test_only_what_was_compared_counts(spark: SparkSession, versions: tuple[Settings, list[Generation]]) -> None:
    settings, (live, _, cast) = versions
    found = shares(spark, settings, live, cast, {0: OffsetRange(4, 7)}, None)
    assert found["visit_id"] == Share(0, 2 / 3)
    assert shares(spark, settings, live, cast, {0: OffsetRange(5, 10)}, None) == {}, "live has none to compare"


def test_nan_counts_as_null_and_a_tombstone_as_nothing(spark: SparkSession) -> None:
    texts = [b'{"x": 1.5}', b'{"x": "NaN"}', b"{}", None, b'{"x": 2}']
    frame = spark.createDataFrame([(text,) for text in texts], "value binary")
    row = nulls.counted(frame, parsing.declared("x DOUBLE")).collect()[0]
    assert row.asDict() == {nulls.VALUES: 4, "x": 2}


def test_of_results_with_state_the_newest_closed_version_counts(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = cuts.shipped("visits_deduplicated")
    own, settings = cuts.own_session(spark, pipeline), fakes.installation(tmp_path)
    jobs = [Job(own, settings, pipeline, number) for number in (1, 2)]
    for job in jobs:
        visits = [{"event_id": f"v{n}", "event_time": at(f"09:0{n}"), "page": "home"} for n in range(9)]
        if job.number == 2:
            visits[0]["page"] = visits[1]["page"] = visits[8]["page"] = None
        # Closed by then are the visits up to 09:05.
        job.read([(0, visit) for visit in [*visits, {"event_id": "last", "event_time": at("09:25")}]])
    sides = [job.generation for job in jobs]
    bounds = comparison.bounds_of(settings, *sides)
    found = shares(own, settings, *sides, {0: OffsetRange(0, 10)}, bounds)
    assert found["page"] == Share(0, 2 / 6)


@pytest.mark.parametrize("verdict", [lifecycle.ERROR])
def test_an_error_stays_an_error(verdict: str) -> None:
    assert null_gate.gated(verdict, "why", {"x": Share(0, 1)}, 0.01) == (verdict, "why")


def test_a_volatile_column_may_not_be_null_less_often_either() -> None:
    found = {"x": Share(0.5, 0.25)}
    assert null_gate.gated(lifecycle.PASS, "", found, 0.01) == (lifecycle.PASS, "")
    told = "x is null in 25.0%, in live in 50.0%"
    assert null_gate.gated(lifecycle.PASS, "", found, 0.01, ["x"]) == (lifecycle.FAIL, told)
    assert null_gate.gated(lifecycle.PASS, "", found, 0.25, ["x"]) == (lifecycle.PASS, "")
