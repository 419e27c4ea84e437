"""The shipped pipelines with state keep their contract, and give the documents' sessions."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters.session import SOURCE_EVOLUTION
from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.declared import pipelines
from rewind.steps.generation.logic import empty_records, empty_stream
from rewind.transforms.logic import contract
from rewind.transforms.records import results

FOLDER = Path(__file__).resolve().parents[2] / "include" / "pipelines"
DELAYS = {
    "visits_window_counter": timedelta(minutes=20),
    "visits_closed_windows": timedelta(minutes=10),
    "visits_sessions": timedelta(minutes=10),
    "visits_deduplicated": timedelta(minutes=20),
}


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    """A stream of source records that is never started."""
    return empty_stream(spark)


def declared(name: str) -> tuple[Pipeline, contract.Logic]:
    return pipelines.load(FOLDER, name), importlib.import_module(f"pipelines.{name}.logic").transform


@pytest.mark.parametrize("name", DELAYS)
def test_a_shipped_pipeline_keeps_its_contract(spark: SparkSession, stream: DataFrame, name: str) -> None:
    pipeline, logic = declared(name)
    found = contract.examine(logic, pipeline, empty_records(spark))
    assert found.spanned == (name != "visits_deduplicated")
    assert contract.watermark_delay(logic, pipeline, stream) == DELAYS[name]


def records(spark: SparkSession, *values: dict[str, object]) -> DataFrame:
    rows = [(None, json.dumps(v).encode(), [], "visits", 0, n, None) for n, v in enumerate(values)]
    return spark.createDataFrame(rows, empty_records(spark).schema)


def computed(spark: SparkSession, name: str, *values: dict[str, object]) -> list[dict[str, object]]:
    pipeline, logic = declared(name)
    made = contract.examine(logic, pipeline, empty_records(spark))
    rows = results.values(logic(results.usable(records(spark, *values), pipeline)), pipeline, made)
    return [json.loads(row["value"].decode()) for row in rows.collect()]


def at(user: int, time: str) -> dict[str, object]:
    return {"user_id": user, "event_time": f"2025-09-04T{time}"}


USERS = {
    1: "08:59 09:06 09:15 09:21 09:30 09:35 09:40 09:49 09:50 09:51 09:52 10:00 10:10 10:20 10:30 10:40 10:50 11:00",
    2: "09:49 10:00 10:05 10:45 10:50",
    3: "10:52 11:02 11:12 11:22 11:32 11:42 11:52",
}


def test_the_documents_sessions(spark: SparkSession) -> None:
    visits = [at(user, f"{time}:00") for user, times in USERS.items() for time in times.split()]
    found = computed(spark, "visits_sessions", *visits, at(1, "11:25:00"))
    sizes = sorted((row["user_id"], row["session_start"][11:16], row["pages"]) for row in found)
    assert sizes == [
        (1, "08:59", 18),
        (1, "11:25", 1),
        (2, "09:49", 1),
        (2, "10:00", 2),
        (2, "10:45", 2),
        (3, "10:52", 7),
    ]


def test_a_pause_of_exactly_600_s_belongs_and_a_longer_one_does_not(spark: SparkSession) -> None:
    found = computed(spark, "visits_sessions", at(1, "10:00:00"), at(1, "10:10:00"), at(1, "10:20:00.001"))
    assert sorted(
        (r["session_start"][11:23], r["session_end"][11:23], r["closed_at"][11:23], r["pages"]) for r in found
    ) == [
        ("10:00:00.000", "10:10:00.000", "10:20:00.001", 2),
        ("10:20:00.001", "10:20:00.001", "10:30:00.002", 1),
    ]


COUNTER = "visits_window_counter"
FAULTS = [
    ({"result_ends": "count"}, "output.ends", "column count of transform() is long"),
    ({"result_starts": "begin"}, "output.starts", "column begin of transform() is missing"),
    ({"closes_at": "event_tim"}, "closes_at", "is not a valid SQL expression over the columns"),
    ({"closes_at": "visit_id"}, "closes_at", "is of type long"),
    ({"output_key": ("begin",)}, "output.key", "returns no begin"),
]


@pytest.mark.parametrize(("change", "field", "problem"), FAULTS)
def test_what_breaks_the_contract_of_state(spark, change, field, problem):
    pipeline, logic = declared(COUNTER)
    with pytest.raises(RefusedError) as raised:
        contract.examine(logic, replace(pipeline, **change), empty_records(spark))
    assert raised.value.field == field
    assert problem in raised.value.problem


def test_a_grouped_row_is_no_records_to_reject(spark: SparkSession) -> None:
    pipeline, logic = declared(COUNTER)
    with pytest.raises(RefusedError) as raised:
        contract.examine(
            lambda r: logic(r).withColumn("_reject", F.lit(None).cast("string")), pipeline, empty_records(spark)
        )
    assert raised.value.field == "logic"


def test_a_horizon_needs_a_watermark_that_is_no_longer(spark: SparkSession, stream: DataFrame) -> None:
    pipeline, logic = declared(COUNTER)
    with pytest.raises(RefusedError) as raised:
        contract.watermark_delay(logic, replace(pipeline, state_horizon="PT19M"), stream)
    assert "PT19M is shorter than the watermark's delay of 0:20:00" in raised.value.problem
    unmarked = lambda records: records.groupBy("event_id").agg(F.count(F.lit(1)).alias("n"))  # noqa: E731
    with pytest.raises(RefusedError) as raised:
        contract.watermark_delay(unmarked, pipeline, stream)
    assert "no withWatermark()" in raised.value.problem
    assert contract.watermark_delay(unmarked, replace(pipeline, state_horizon="unbounded"), stream) is None


@pytest.mark.shows("stateful", c36_watermark_without_delay="refused")
def test_c36_a_watermark_without_delay_is_refused(stream: DataFrame) -> None:
    pipeline, _ = declared(COUNTER)
    with pytest.raises(RefusedError) as raised:
        contract.watermark_delay(lambda records: records.withWatermark("event_time", "0 seconds"), pipeline, stream)
    assert raised.value.field == "logic"
    assert "without delay" in raised.value.problem


def test_the_state_of_a_logic_is_told_by_its_operators_and_their_columns(stream: DataFrame) -> None:
    pipeline, logic = declared(COUNTER)
    (counter,) = contract.state_shape(logic, pipeline, stream)
    assert counter.startswith("Aggregate struct<window:struct<start:timestamp,end:timestamp>,count:bigint,_src:array<")
    pipeline, logic = declared("visits_deduplicated")
    assert contract.state_shape(logic, pipeline, stream) == ["DeduplicateWithinWatermark event_id"]


def test_another_column_or_order_of_columns_is_another_state(stream: DataFrame) -> None:
    def counting(*extra: str) -> contract.Logic:
        def logic(records: DataFrame) -> DataFrame:
            timed = records.withWatermark("event_time", "20 minutes")
            columns = {"n": F.count(F.lit(1)), "last": F.max("event_time")}
            return timed.groupBy("event_id").agg(*(columns[name].alias(name) for name in extra))

        return logic

    pipeline, _ = declared(COUNTER)
    shapes = [
        contract.state_shape(counting(*names), pipeline, stream) for names in (["n"], ["n", "last"], ["last", "n"])
    ]
    assert len({str(shape) for shape in shapes}) == 3


def test_a_plan_is_looked_at_where_sources_are_named_too(spark: SparkSession) -> None:
    spark.conf.set(SOURCE_EVOLUTION, "true")
    try:
        assert empty_stream(spark).isStreaming
    finally:
        spark.conf.unset(SOURCE_EVOLUTION)
