"""Expectations of a pipeline, judged by Great Expectations: the output's contract, and gates on what was counted.

Great Expectations says success of a suite whose check raised and vanished (its source, `calc_validation_statistics`,
counts what came back). So each answer is held against what was asked: what is missing, doubled or raised is an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.steps.compare.findings import BAD, Found

SAMPLE = 20
"""Unexpected values that are kept of an expectation."""
NOT_EXAMINED = "no value was there to be examined"
"""Why an expectation of rows that are not there, or of a column that is null in all, says nothing."""
LONGEST = 500
"""Characters of an error that are kept."""


@dataclass(frozen=True)
class Answer:
    """What became of one expectation.

    Attributes:
        of: What it was asked of, `output` or `differences`.
        type: Its type, as `expectations.json` has it.
        column: The column it is about; empty for the table.
        success: Whether it holds; None when it has no answer.
        counted: What was counted, exact.
        sample: The first unexpected values, as texts that are exact.
        error: Why it has no answer; empty when it has one.
    """

    of: str
    type: str
    column: str
    success: bool | None
    counted: Mapping[str, Any]
    sample: tuple[str | int | None, ...] = ()
    error: str = ""

    def told(self) -> str:
        """Return what is wrong with it, in a line."""
        about = f"{self.type} of {self.column or self.of}"
        return f"{about} has no answer: {self.error}" if self.success is None else f"{about} does not hold"


def answers(
    asked: Mapping[str, Sequence[Mapping[str, Any]]], frames: Mapping[str, DataFrame], docs: Path
) -> list[Answer]:
    """Return the answer to each expectation of a pipeline.

    Args:
        asked: Expectations by what they are asked of (`declared.expectations`).
        frames: The rows of each; they are read several times.
        docs: Folder for the Data Docs of this run; what lies there is replaced.
    """
    # Nobody is told of it over the network.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    found: list[Answer] = []
    with tempfile.TemporaryDirectory(prefix="expectations-") as project:
        context = gx.get_context(mode="file", project_root_dir=project)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        source = context.data_sources.add_spark("rows", persist=False)
        for of, listed in asked.items():
            if listed:
                found += _answered(context, source, of, listed, frames[of])
        if found:
            _keep(context.build_data_docs(), docs)
    return found


def summary(spark: SparkSession, found: Found) -> DataFrame:
    """Return the row that gates are asked of: a column a class, and `differences`, the sum of those that fail."""
    row = {**found.counts, "differences": sum(found.counts.get(name, 0) for name in BAD)}
    return spark.createDataFrame([tuple(row.values())], ", ".join(f"`{name}` BIGINT" for name in row))


def gated(verdict: str, reason: str, found: Sequence[Answer]) -> tuple[str, str]:
    """Return a verdict and its reason, with what the expectations add: unanswered is an error, unmet a fail."""
    unanswered = [answer.told() for answer in found if answer.success is None]
    unmet = [answer.told() for answer in found if answer.success is False]
    told = "; ".join([*([reason] if reason else []), *unanswered, *unmet])
    if unanswered:
        return lifecycle.ERROR, told
    if unmet and verdict != lifecycle.ERROR:
        return lifecycle.FAIL, told
    return verdict, told


def _answered(context: Any, source: Any, of: str, listed: Sequence[Mapping[str, Any]], rows: DataFrame) -> list[Answer]:
    import great_expectations as gx

    whole = source.add_dataframe_asset(of).add_batch_definition_whole_dataframe("all")
    numbered = [{**expectation, "meta": {"number": number}} for number, expectation in enumerate(listed)]
    suite = context.suites.add(gx.ExpectationSuite(name=of, expectations=numbered))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=of, data=whole, suite=suite))
    views = _views(rows)
    capped = {"result_format": "SUMMARY", "partial_unexpected_count": SAMPLE}
    try:
        results = definition.run(batch_parameters={"dataframe": rows}, result_format=capped).results
    finally:
        for view in _views(rows) - views:
            rows.sparkSession.catalog.dropTempView(view)
    return [_answer(of, expectation, _of(results, number)) for number, expectation in enumerate(listed)]


def _of(results: Sequence[Any], number: int) -> list[Any]:
    return [result for result in results if result.expectation_config.meta.get("number") == number]


def _answer(of: str, asked: Mapping[str, Any], results: Sequence[Any]) -> Answer:
    name, column = str(asked["type"]), str(asked["kwargs"].get("column", ""))
    if len(results) != 1:
        return Answer(of, name, column, None, {}, error=f"it came back {len(results)} times")
    (result,) = results
    raised = _raised(result.exception_info or {})
    if raised is not None:
        return Answer(of, name, column, None, {}, error=raised)
    said = dict(result.result)
    sample = tuple(exact(value) for value in said.pop("partial_unexpected_list", [])[:SAMPLE])
    counted = {key: exact(value) for key, value in said.items() if not isinstance(value, (list, dict))}
    if not _examined(said):
        return Answer(of, name, column, None, counted, error=NOT_EXAMINED)
    return Answer(of, name, column, bool(result.success), counted, sample)


def _examined(said: Mapping[str, Any]) -> bool:
    """Return whether there was any value: Great Expectations says that an expectation of none holds."""
    elements = said.get("element_count")
    if elements is not None:
        return bool(elements > (said.get("missing_count") or 0))
    return "observed_value" not in said or said["observed_value"] not in (None, [], {})


def _raised(info: Mapping[str, Any]) -> str | None:
    """Return the words of what was raised, by the expectation or by one of its metrics, or None."""
    for told in (info, *(inner for inner in info.values() if isinstance(inner, Mapping))):
        if told.get("raised_exception"):
            return str(told.get("exception_message") or "it raised")[:LONGEST]
    return None


def exact(value: Any) -> Any:
    """Return a value as JSON can hold it without loss: times in UTC and decimals as texts."""
    if isinstance(value, datetime):
        # PySpark gives instants in the zone of this process, without a zone.
        return value.astimezone(UTC).isoformat()
    if isinstance(value, (Decimal, date)):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _views(rows: DataFrame) -> set[str]:
    return {table.name for table in rows.sparkSession.catalog.listTables() if table.isTemporary}


def _keep(sites: Mapping[str, str], docs: Path) -> None:
    """Move the Data Docs of a run to their folder."""
    (index,) = sites.values()
    with side_effect("evidence.docs"):
        shutil.rmtree(docs, ignore_errors=True)
        docs.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(index.removeprefix("file://")).parent, docs)
