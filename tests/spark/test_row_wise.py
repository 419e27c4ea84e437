"""Logic that depends on more than the record is refused by name; what is accepted gives the same in any batches."""

from __future__ import annotations

import itertools
import os
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.steps.generation import cut_trial
from rewind.steps.generation.logic import empty_records, empty_stream
from rewind.transforms.logic import contract, expressions
from rewind.transforms.values import parsing
from tests.scenarios import batch_cuts
from tests.support import logics

Refusals = Callable[[Pipeline, Mapping[str, contract.Logic]], dict[str, str]]
SEED = int(os.environ.get("SEED") or random.randrange(10**6))
CUTS, RECORDS = 4, 60


@pytest.fixture(autouse=True)
def no_view_left(spark: SparkSession) -> Iterator[None]:
    """Drop the view of the one logic: the session is that of other files too."""
    yield
    spark.catalog.dropTempView(logics.VIEW)


@pytest.fixture
def refusals(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Refusals:
    """What the contract says of those of some logics that it refuses."""
    empty = empty_records(spark)
    # All have one schema, and to say how it is read takes longer than all that is looked at here.
    parsed = parsing.parse(empty, logics.PIPELINE)
    monkeypatch.setattr(contract.parsing, "parse", lambda records, pipeline: parsed)

    def told(pipeline: Pipeline, cases: Mapping[str, contract.Logic]) -> dict[str, str]:
        found = {}
        for name, logic in cases.items():
            try:
                contract.examine(logic, pipeline, empty)
            except RefusedError as error:
                found[name] = str(error)
        return found

    return told


def unlike(refusals: Refusals, pipeline: Pipeline, cases: Mapping[str, logics.Refused]) -> dict[str, str | None]:
    """Return what is said of the logics of which it is not what must be said."""
    told = refusals(pipeline, {name: logic for name, (logic, _) in cases.items()})
    return {name: told.get(name) for name, (_, words) in cases.items() if words not in told.get(name, "")}


@pytest.mark.shows("truth", logics_refused_by_name=len(logics.REFUSED))
def test_what_depends_on_batch_order_clock_or_chance_is_refused_by_name(refusals: Refusals) -> None:
    assert unlike(refusals, logics.SEVERAL_ROWS, logics.REFUSED) == {}


def test_what_answers_from_the_record_alone_is_accepted(refusals: Refusals) -> None:
    assert refusals(logics.PIPELINE, logics.ACCEPTED) == {}
    assert refusals(logics.SEVERAL_ROWS, logics.SEVERAL) == {}


def test_several_rows_of_a_record_must_be_declared_to_be_numbered(refusals: Refusals) -> None:
    told = refusals(logics.PIPELINE, logics.SEVERAL)
    assert told.keys() == logics.SEVERAL.keys()
    assert told["exploded"] == (
        "several_rows: logics: transform() uses Generate, which may give several rows of one record. "
        "Declare several_rows: true, so that they are numbered"
    )
    assert {text.rpartition(". ")[2] for text in told.values()} == {
        "Declare several_rows: true, so that they are numbered"
    }


def test_what_a_state_is_fed_with_is_held_to_the_same(refusals: Refusals) -> None:
    assert unlike(refusals, logics.STATEFUL, logics.STATEFUL_REFUSED) == {}
    assert refusals(logics.STATEFUL, logics.STATEFUL_ACCEPTED) == {}


def test_a_refusal_names_what_is_used_and_the_cure(refusals: Refusals) -> None:
    told = refusals(logics.PIPELINE, {name: logics.REFUSED[name][0] for name in ("limit", "sample", "rand", "exists")})
    assert told == {
        "limit": "logic: logics: transform() uses GlobalLimit, which may give other rows for other batches. "
        "Leave it out: docs/logic.md says what transform() may use",
        "sample": "logic: logics: transform() uses Sample, which may give other rows for other batches. "
        "Choose by the record: pmod(xxhash64(_src.partition, _src.offset), 100) < 10",
        "rand": "logic: logics: transform() uses rand(), which answers by chance. "
        "Derive it from the record: xxhash64(_src.partition, _src.offset)",
        "exists": "logic: logics: transform() uses a subquery (Exists), which sees the records of one batch alone. "
        "Declare stateful: true and group, or do without",
    }


def test_a_table_that_is_read_is_none_that_is_written_into_the_logic(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"kind": "a", "name": "first"}\n')

    def joined(records: DataFrame) -> DataFrame:
        names = records.sparkSession.read.schema("kind STRING, name STRING").json(str(tmp_path))
        return records.join(F.broadcast(names), "kind", "left").select("id", "name", "_src")

    told = refusals(logics.SEVERAL_ROWS, {"joined": joined})
    assert "LogicalRelation, rows that are not written into the logic" in told["joined"]


def shouting() -> Callable[[str | None], str | None]:
    def shouted(kind: str | None) -> str | None:
        return kind and kind.upper()

    # A worker of Spark gets it as it stands: there is no module of tests to import.
    return shouted


def with_function(function: Callable[..., object], deterministic: bool = True) -> contract.Logic:
    made = F.udf(function, "string")
    used = made if deterministic else made.asNondeterministic()
    return lambda records: records.select("id", used("kind").alias("made"), "_src")


def test_a_declared_function_is_accepted_unless_it_says_that_it_is_not_deterministic(refusals: Refusals) -> None:
    cases = {"declared": with_function(shouting()), "nondeterministic": with_function(shouting(), deterministic=False)}
    words = "shouted() in Python, which runs code that Spark cannot look into"
    for functions, refused in (("shouted",), {"nondeterministic"}), (("another",), set(cases)):
        told = refusals(replace(logics.PIPELINE, functions=functions), cases)
        assert told.keys() == refused
        assert all(words in text for text in told.values())


def test_a_declared_function_is_tried_in_two_cuts(spark: SparkSession) -> None:
    calls = itertools.count()

    def counted(kind: str | None) -> str:
        return f"{kind} {next(calls)}"

    pipeline = replace(logics.PIPELINE, functions=("counted", "shouted"))
    drawn = batch_cuts.records(random.Random(SEED), RECORDS)
    records = spark.createDataFrame(drawn, empty_records(spark).schema).coalesce(1)
    cut_trial.compare(records, with_function(shouting()), pipeline)
    with pytest.raises(RefusedError, match="functions: counted, shouted of logics gave the same records other rows"):
        cut_trial.compare(records, with_function(counted), pipeline)


def test_an_older_generation_keeps_its_logic(spark: SparkSession) -> None:
    older = replace(logics.PIPELINE, exact=False)
    logic, _ = logics.REFUSED["limit"]
    assert not contract.examine(logic, older, empty_records(spark)).row_wise


@pytest.mark.parametrize("name", logics.ASKING)
def test_logic_that_asks_for_rows_while_its_plan_is_made_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(RefusedError, match=r"asks for rows \(count\(\), collect\(\), ...\): it sees one batch of them"):
        contract.check_lazy(logics.ASKING[name], logics.PIPELINE, empty_stream(spark))


def test_the_lists_name_expressions_that_spark_has() -> None:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-catalyst_*.jar")
    classes = {Path(name).stem.rpartition("$")[2] for name in zipfile.ZipFile(jar).namelist()}
    assert not (expressions.ROW_WISE | expressions.AGGREGATES) - classes


@pytest.fixture(scope="module")
def drawn(session: SparkSession) -> DataFrame:
    """Drawn records as logic gets them."""
    print(f"SEED={SEED}")
    return batch_cuts.parsed(session, logics.PIPELINE, SEED, RECORDS)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_what_is_accepted_gives_the_same_rows_of_any_cut(spark: SparkSession, drawn: DataFrame) -> None:
    found = {name: batch_cuts.differing(drawn, logic, SEED, CUTS) for name, logic in logics.ALL_ACCEPTED.items()}
    assert {name: cuts for name, cuts in found.items() if cuts} == {}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["self_join", "limit", "row_number"])
def test_a_cut_shows_what_depends_on_the_batch(spark: SparkSession, drawn: DataFrame, name: str) -> None:
    assert batch_cuts.differing(drawn, logics.REFUSED[name][0], SEED, 3)
