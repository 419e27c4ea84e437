"""Records through parsing and logic to sink rows: cases C30, C31 and C37, and the header contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.steps.generation.logic import empty_records
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding
from rewind.transforms.records.headers import Stamp

pytestmark = pytest.mark.usefixtures("compiled")

PIPELINE = Pipeline(
    name="visits_converter",
    source_topic="visits",
    schema="event_id STRING, visit_id BIGINT, event_time TIMESTAMP, page STRING",
    output_topic="visits_converted",
    required=("event_id", "visit_id", "event_time"),
)
STAMP = Stamp("visits_converter-g3", 7, "TOPIC", "out", "dead")
GOOD = b'{"event_id": "click-1", "visit_id": 1, "event_time": "2025-09-04T07:00:00.000000", "page": "home"}'
CONVERTED = (
    '{"event_identifier":"click-1","visit_identifier":1,'
    '"event_time":"2025-09-04T07:00:00.000+02:00","visited_page":"home"}'
)


def projection(records: DataFrame) -> DataFrame:
    return records.select(
        F.col("event_id").alias("event_identifier"),
        F.col("visit_id").alias("visit_identifier"),
        "event_time",
        F.col("page").alias("visited_page"),
        "_src",
    )


def filtering(records: DataFrame) -> DataFrame:
    return projection(records.where("visit_id < 1000000"))


def frame(spark: SparkSession, *values: bytes | None, keys: list[bytes | None] | None = None) -> DataFrame:
    rows = [
        (k, v, [], "visits", 0, i, None)
        for i, (k, v) in enumerate(zip(keys or [b"k"] * len(values), values, strict=True))
    ]
    return spark.createDataFrame(rows, empty_records(spark).schema)


def encode(
    spark: SparkSession,
    records: DataFrame,
    logic: Callable[[DataFrame], DataFrame] = projection,
    pipeline: Pipeline = PIPELINE,
    stamp: Stamp = STAMP,
) -> list[Row]:
    made = contract.examine(logic, pipeline, empty_records(spark))
    return encoding.encode(records, logic, pipeline, made, stamp).collect()


def headers(row: Row) -> dict[str, str]:
    return {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}


def text(row: Row) -> str | None:
    return None if row["value"] is None else bytes(row["value"]).decode()


@pytest.mark.parametrize("logic", [projection, filtering])
def test_c30_bad_records_go_to_the_dead_letters_with_their_reason(
    spark: SparkSession, logic: Callable[[DataFrame], DataFrame]
) -> None:
    values = [
        GOOD,
        b"not a JSON",
        GOOD.replace(b": 1,", b': "abc",'),
        GOOD[:-1],
        b"[]",
        b"",
        GOOD[:-1] + b', "lang": "fr"}',
        GOOD[:-1] + b', "visit_id": 2}',
    ]
    rows = encode(spark, frame(spark, *values), logic)
    out = {headers(r)["rewind-source"]: text(r) for r in rows if r["topic"] == "out"}
    dead = {
        headers(r)["rewind-source"]: (bytes(r["value"]), headers(r)["rewind-reason"])
        for r in rows
        if r["topic"] == "dead"
    }
    assert out == {
        "TOPIC:0:0": CONVERTED,
        "TOPIC:0:6": CONVERTED,
        # The stated rule: of a field that stands twice the last one counts.
        "TOPIC:0:7": CONVERTED.replace('"visit_identifier":1', '"visit_identifier":2'),
    }
    assert dead == {
        "TOPIC:0:1": (b"not a JSON", "not a JSON object"),
        "TOPIC:0:2": (values[2], "malformed, or a value of another type"),
        "TOPIC:0:3": (values[3], "malformed, or a value of another type"),
        "TOPIC:0:4": (b"[]", "not a JSON object"),
        "TOPIC:0:5": (b"", "empty value"),
    }


def test_a_required_column_that_is_missing_or_null_rejects(spark: SparkSession) -> None:
    rows = encode(
        spark,
        frame(spark, b"{}", GOOD.replace(b'"click-1"', b"null"), GOOD.replace(b'"page": "home"', b'"page": null')),
    )
    assert [(r["topic"], headers(r).get("rewind-reason")) for r in rows] == [
        ("dead", "event_id is missing"),
        ("dead", "event_id is missing"),
        ("out", None),
    ]


@pytest.mark.parametrize("logic", [projection, filtering])
def test_tombstones_go_out_under_the_source_key_and_null_keys_stay(
    spark: SparkSession, logic: Callable[[DataFrame], DataFrame]
) -> None:
    rows = encode(spark, frame(spark, None, GOOD, None, keys=[b"a", None, None]), logic)
    assert [(r["topic"], r["key"], text(r)) for r in rows] == [
        ("out", b"a", None),
        ("out", None, CONVERTED),
        ("out", None, None),
    ]


def test_c31_bytes_that_are_not_utf8_are_rejected_unchanged_and_stay_apart(spark: SparkSession) -> None:
    values = [
        GOOD.replace(b"home", b"\xff"),
        GOOD.replace(b"home", b"\xfe"),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"home", b"a\x00b"),
    ]
    rows = encode(spark, frame(spark, *values, keys=[b"\x00\x01\x80"] * 4))
    assert [(r["topic"], r["key"], bytes(r["value"])) for r in rows] == [("dead", b"\x00\x01\x80", v) for v in values]
    assert headers(rows[0])["rewind-reason"] == headers(rows[1])["rewind-reason"] == "not UTF-8"


def test_every_row_names_its_job_its_token_and_its_source(spark: SparkSession) -> None:
    (row,) = encode(spark, frame(spark, GOOD))
    assert headers(row) == {"rewind-job": "visits_converter-g3", "rewind-token": "7", "rewind-source": "TOPIC:0:0"}


def test_a_repair_marks_its_rows(spark: SparkSession) -> None:
    stamp = Stamp("visits_converter-r2", 1, "TOPIC", "out", "dead", repair=2)
    (row,) = encode(spark, frame(spark, GOOD), stamp=stamp)
    assert headers(row)["rewind-repair"] == "2"


def test_logic_may_reject(spark: SparkSession) -> None:
    def picky(records: DataFrame) -> DataFrame:
        reason = F.when(F.col("page") == "home", F.lit("no homes"))
        return projection(records.withColumn("_reject", reason)).withColumn("_reject", F.lit("no homes"))

    rows = encode(spark, frame(spark, GOOD, None), picky)
    assert [(r["topic"], headers(r).get("rewind-reason")) for r in rows] == [("dead", "no homes"), ("out", None)]
    assert bytes(rows[0]["value"]) == GOOD


def test_both_ways_through_the_logic_give_the_same_rows_in_the_same_order(spark: SparkSession) -> None:
    values = [GOOD, b"x", None, GOOD.replace(b"home", b"index"), b"", None, GOOD]
    assert encode(spark, frame(spark, *values), projection) == encode(spark, frame(spark, *values), filtering)


def test_several_rows_of_a_record_are_numbered_the_same_in_any_order(spark: SparkSession) -> None:
    pipeline = Pipeline("p", "visits", PIPELINE.schema, "out", several_rows=True)

    def twice(order: list[str]) -> Callable[[DataFrame], DataFrame]:
        def logic(records: DataFrame) -> DataFrame:
            return records.select(F.explode(F.array(*map(F.lit, order))).alias("part"), "_src")

        return logic

    first = encode(spark, frame(spark, GOOD), twice(["a", "b"]), pipeline)
    second = encode(spark, frame(spark, GOOD), twice(["b", "a"]), pipeline)
    places = {text(r): headers(r)["rewind-source"] for r in first}
    assert places == {'{"part":"a"}': "TOPIC:0:0", '{"part":"b"}': "TOPIC:0:0:1"}
    assert {text(r): headers(r)["rewind-source"] for r in second} == places


def test_declared_key_columns_make_the_output_key(spark: SparkSession) -> None:
    pipeline = Pipeline("p", "visits", PIPELINE.schema, "out", output_key=("visit_identifier",))
    (row,) = encode(spark, frame(spark, GOOD), pipeline=pipeline)
    assert row["key"] == b'{"visit_identifier":1}'


@pytest.mark.parametrize(
    ("logic", "told"),
    [
        (lambda records: records.drop("_src"), "logic: visits_converter: transform() loses _src"),
        (lambda records: records.groupBy("_src").count(), "is declared stateless but uses Aggregate"),
        (lambda records: records.dropDuplicates(["event_id"]), "is declared stateless but uses Deduplicate"),
    ],
)
def test_logic_that_breaks_the_contract_is_refused(
    spark: SparkSession, logic: Callable[[DataFrame], DataFrame], told: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        contract.examine(logic, PIPELINE, empty_records(spark))
    assert told in str(refused.value)


def test_a_key_column_that_logic_does_not_return_is_refused(spark: SparkSession) -> None:
    pipeline = Pipeline("p", "visits", PIPELINE.schema, "out", output_key=("nothing",))
    with pytest.raises(RefusedError, match=r"output.key: transform\(\) returns no nothing"):
        contract.examine(projection, pipeline, empty_records(spark))


def test_c37_a_field_of_another_type_is_rejected_and_a_new_field_counts_once_declared(spark: SparkSession) -> None:
    values = [GOOD, GOOD.replace(b": 1,", b': "V-17",'), GOOD[:-1] + b', "lang": "fr"}']
    declared = Pipeline("p", "visits", PIPELINE.schema + ", lang STRING", "out", required=PIPELINE.required)

    def with_lang(records: DataFrame) -> DataFrame:
        return records.select("event_id", "lang", "_src")

    rows = encode(spark, frame(spark, *values), with_lang, declared)
    assert [(r["topic"], text(r)) for r in rows] == [
        ("out", '{"event_id":"click-1"}'),
        ("dead", values[1].decode()),
        ("out", '{"event_id":"click-1","lang":"fr"}'),
    ]


@pytest.mark.parametrize(("zone", "written"), [("Europe/Paris", "07:00:00.000+02:00"), ("UTC", "07:00:00.000Z")])
def test_c21_the_session_zone_reads_zoneless_texts_and_writes_json(
    spark: SparkSession, zone: str, written: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    (row,) = encode(spark, frame(spark, GOOD))
    assert text(row) == CONVERTED.replace("07:00:00.000+02:00", written)
