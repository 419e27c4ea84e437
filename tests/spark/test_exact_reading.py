"""What comes in is what goes out, or a dead letter with a reason: P01, P02, P03, P04, P05 and P07, and drawn values."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.steps.generation.logic import empty_records
from rewind.transforms.logic import contract, fitness
from rewind.transforms.records import encoding
from rewind.transforms.values import parsing
from tests.scenarios.truth_values import FORMS, STAMP, UNREADABLE, drawn, outcome, through_outputs

pytestmark = pytest.mark.usefixtures("compiled")

A = '{"id":1,"s":"x"}'


@pytest.mark.shows("truth", p01="bytes behind an object make a dead letter, white space none")
def test_p01_bytes_after_the_first_object_are_never_lost(spark: SparkSession) -> None:
    behind = [A, f"\n{A}", " garbage", "}", "]", f",{A}", '],"x":[{}', '],"x":[]}}', ',"s":1', " null", '"']
    assert outcome(spark, "id BIGINT, s STRING", *(A + more for more in behind)) == [UNREADABLE] * len(behind)
    assert outcome(spark, "id BIGINT, s STRING", f"{A} \n\t\r", f" \n{A}", A) == [A] * 3


@pytest.mark.shows("truth", p02="what is no instant is a dead letter")
def test_p02_what_is_no_instant_is_none_on_any_day(spark: SparkSession) -> None:
    wrong = ["07:00:00", "T07:00", "23456", "2025", "2025-09", "1757000000000", "2025-09-04T07:00:00.1234567891"]
    wrong += ["2025-09-04Tgarbage", "2025-03-30T02:30:00", "0000-01-01T00:00:00"]
    texts = [f'{{"t":"{text}"}}' for text in wrong] + ['{"t":1757000000000}', '{"t":true}']
    assert outcome(spark, "t TIMESTAMP", *texts) == ["t is no instant"] * len(texts)
    right = {
        "2025-09-04T07:00:00": "2025-09-04T07:00:00.000+02:00",
        "2025-09-04 07:00": "2025-09-04T07:00:00.000+02:00",
        "2025-09-04": "2025-09-04T00:00:00.000+02:00",
        "2025-09-04T07:00:00.789123Z": "2025-09-04T09:00:00.789123+02:00",
        "2025-03-30T02:30:00+01:00": "2025-03-30T03:30:00.000+02:00",
        "0001-01-01T00:00:00": "0001-01-01T00:00:00.000+00:09:21",
        "9999-12-31T23:59:59.999999": "9999-12-31T23:59:59.999999+01:00",
    }
    told = outcome(spark, "t TIMESTAMP", *(f'{{"t":"{text}"}}' for text in right))
    assert told == [f'{{"t":"{text}"}}' for text in right.values()]
    dates = outcome(spark, "d DATE", '{"d":"2025-09-04Tgarbage"}', '{"d":"20250904"}', '{"d":5}', '{"d":"2025-09-04"}')
    assert dates == ["d is no date"] * 3 + ['{"d":"2025-09-04"}']


@pytest.mark.shows("truth", p03="dead letters that name the field")
def test_p03_a_key_that_stands_twice_and_a_field_that_must_be_there(spark: SparkSession) -> None:
    schema = "id BIGINT NOT NULL, tags MAP<STRING, INT>, a ARRAY<STRUCT<n: INT NOT NULL, m: MAP<STRING, INT>>>"
    told = {
        '{"id":1,"tags":{"x":1}}': '{"id":1,"tags":{"x":1}}',
        '{"id":1,"tags":{"x":1,"x":2}}': "tags holds a key twice",
        '{"tags":{"x":1}}': "id is missing",
        '{"id":null}': "id is missing",
        '{"id":1,"a":[{"m":{}}]}': "a[].n is missing",
        '{"id":1,"a":[{"n":1},{"n":2,"m":{"y":1,"y":1}}]}': "a[].m holds a key twice",
        '{"id":1,"a":[null]}': '{"id":1,"a":[null]}',
        '{"id":1,"tags":{"x":"y"}}': UNREADABLE,
    }
    assert outcome(spark, schema, *told) == list(told.values())


@pytest.mark.shows("truth", p04="the value of the named field")
def test_p04_a_name_is_itself_whatever_it_holds(spark: SparkSession) -> None:
    schema = "`user.id` BIGINT, user STRUCT<id: BIGINT, `x-req`: STRING>, `@t` STRING, `a``b` INT, `v id` INT"
    record = '{"user.id":5,"user":{"id":6,"x-req":"r"},"@t":"t","a`b":3,"v id":4}'
    pipeline = Pipeline("x", "t", schema, "o", required=("user.id", "a`b"), output_key=("user.id", "v id"))
    rows = [(b"k", record.encode(), [], "t", 0, 0, None), (b"k", b'{"user":{"id":6}}', [], "t", 0, 1, None)]
    frame = spark.createDataFrame(rows, empty_records(spark).schema)
    made = contract.examine(lambda records: records, pipeline, empty_records(spark))
    found = encoding.encode(frame, lambda records: records, pipeline, made, STAMP).collect()
    good, dead = sorted(found, key=lambda row: row["topic"], reverse=True)
    assert (bytes(good["key"]), bytes(good["value"])) == (b'{"user.id":5,"v id":4}', record.encode())
    assert dead["headers"][-1]["value"] == b"user.id is missing"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id INT, ID INT", "id stands there twice, if only in another case"),
        ("a STRUCT<x: INT, X: INT>", "a.x stands there twice, if only in another case"),
        ("_SRC INT", "_SRC is a name that Rewind gives columns of its own"),
        ("a ARRAY<INTERVAL DAY TO SECOND>", r"a\[\] is of type INTERVAL DAY TO SECOND, which is not read"),
        ("v VARIANT", "v is of type VARIANT"),
        ("v VARCHAR(3)", r"v is of type VARCHAR\(3\)"),
        ("m MAP<INT, STRING>", "m is a map with keys of INT, which JSON cannot have"),
        ("s STRING COLLATE UTF8_LCASE", "s is of type STRING COLLATE UTF8_LCASE"),
    ],
)
def test_p04_what_cannot_be_kept_is_refused_before_anything_is_read(
    spark: SparkSession, schema: str, problem: str
) -> None:
    with pytest.raises(RefusedError, match=rf"source\.schema: {problem}"):
        contract.examine(lambda records: records, Pipeline("x", "t", schema, "o"), empty_records(spark))


def test_p04_a_table_has_names_of_its_own_and_takes_none_with_spaces() -> None:
    for name, problem in (("visit id", "cannot name a column of a Delta table"), ("_key", "gives columns of its own")):
        schema = parsing.declared(f"`{name}` INT")
        fitness.check(schema, "logic")
        with pytest.raises(RefusedError, match=problem):
            fitness.check(schema, "logic", table=True)


@pytest.mark.shows("truth", p05="microseconds are kept")
def test_p05_microseconds_are_kept_in_value_and_key(spark: SparkSession) -> None:
    texts = [
        '{"t":"2025-09-04T07:00:00.789123"}',
        '{"t":"2025-09-04T07:00:00.789456"}',
        '{"t":"2025-09-04T07:00:00.789"}',
    ]
    for kind, zone in (("TIMESTAMP", "+02:00"), ("TIMESTAMP_NTZ", "")):
        for of, form in (
            (kind, "{}"),
            (f"ARRAY<{kind}>", "[{}]"),
            (f"MAP<STRING, STRUCT<x: {kind}>>", '{{"k":{{"x":{}}}}}'),
        ):
            given = [f'{{"t":{form.format(text[5:-1])}}}' for text in texts]
            assert outcome(spark, f"t {of}", *given) == [
                re.sub(r"(00\.[0-9]+)", rf"\g<1>{zone}", text) for text in given
            ]


@pytest.mark.shows("truth", p07="dead letters that name the field")
def test_p07_numbers_beyond_their_type(spark: SparkSession) -> None:
    told = {
        '{"b":255}': "b is beyond TINYINT",
        '{"b":-129}': "b is beyond TINYINT",
        '{"f":1e39}': "f is beyond FLOAT",
        '{"f":-1e39}': "f is beyond FLOAT",
        '{"d":1e400}': "d is beyond DOUBLE",
        '{"m":1000}': UNREADABLE,
        '{"b":-128,"f":16777217,"d":1.5,"m":1.239}': '{"b":-128,"f":1.6777216E7,"d":1.5,"m":1.24}',
        '{"f":"Infinity","d":"-Infinity"}': '{"f":"Infinity","d":"-Infinity"}',
        '{"f":"NaN","d":-0.0}': '{"f":"NaN","d":-0.0}',
    }
    assert outcome(spark, "b TINYINT, f FLOAT, d DOUBLE, m DECIMAL(5,2)", *told) == list(told.values())


def test_halves_of_a_character_and_numbers_that_a_text_would_round(spark: SparkSession) -> None:
    told = {
        r'{"s":"\ud800"}': "holds half of a surrogate pair",
        r'{"s":"x\ude00"}': "holds half of a surrogate pair",
        r'{"s":"\ud83d\ude00"}': '{"s":"😀"}',
        r'{"s":"\\ud800"}': r'{"s":"\\ud800"}',
        '{"s":12345678901234567.123}': "s is a number that would not be written as it was",
        '{"s":1e400}': "s is a number that would not be written as it was",
        '{"s":12345678901234567123}': '{"s":"12345678901234567123"}',
    }
    assert outcome(spark, "s STRING", *told) == list(told.values())


def test_a_schema_of_many_columns_is_read_at_once(spark: SparkSession) -> None:
    # Checks that stood within each other took twice the time for each column more: sixty would not end.
    schema = ", ".join(f"c{n} DOUBLE" for n in range(60))
    assert outcome(spark, schema, '{"c59":1e400}', '{"c59":1.5}') == ["c59 is beyond DOUBLE", '{"c59":1.5}']


def test_a_generation_of_an_older_release_reads_and_writes_as_it_did(spark: SparkSession) -> None:
    schema = "id BIGINT, s STRING, t TIMESTAMP"
    told = outcome(spark, schema, f"{A}{A}", '{"t":"2025-09-04T07:00:00.789123"}', '{"t":"2025"}', exact=False)
    assert told == [A, '{"t":"2025-09-04T07:00:00.789+02:00"}', '{"t":"2025-01-01T00:00:00.000+01:00"}']


@pytest.mark.shows("truth", p09="refused with field and cure")
def test_p09_a_watermark_on_a_local_time_is_refused_with_the_cure(spark: SparkSession) -> None:
    pipeline = Pipeline("x", "t", "at TIMESTAMP_NTZ", "o", stateful=True, state_horizon="PT1H", closes_at="at")
    stream = spark.readStream.format("rate").load()
    empty = empty_records(spark)
    named = stream.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in empty.schema.fields))
    with pytest.raises(
        RefusedError, match=r"source\.schema: x: withWatermark\(\) is given a column that is no TIMESTAMP"
    ):
        contract.watermark_delay(lambda records: records.withWatermark("at", "1 minute"), pipeline, named)


@pytest.mark.parametrize(
    ("form", "zone"),
    [
        pytest.param(form, zone, marks=[] if (form, zone) == ("deep", "Europe/Paris") else pytest.mark.full)
        for form in FORMS
        for zone in ("Europe/Paris", "America/New_York")
    ],
)
def test_drawn_values_come_out_as_the_oracle_says(spark: SparkSession, form: str, zone: str) -> None:
    seed, many = int(os.environ.get("SEED", "20")), int(os.environ.get("VALUES", "40"))
    draw = random.Random(f"{seed} {form} {zone}")
    found = drawn(spark, form, zone, draw, many)
    # Draws that never reach one of both outcomes would show nothing.
    assert min(found["kept"], found["dead"]) > many


@pytest.mark.full
def test_drawn_values_go_through_logic_to_kafka_and_a_table(spark: SparkSession, tmp_path: Path) -> None:
    found = through_outputs(spark, tmp_path, "deep", "Europe/Paris", random.Random("20"), 20)
    assert min(found["kept"], found["dead"]) > 20
