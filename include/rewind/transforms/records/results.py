"""The results of a logic with state as the rows of a sink: each a new version of its key."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewind.core import coordinates
from rewind.core.pipeline import Pipeline
from rewind.transforms.logic.contract import Contract
from rewind.transforms.records import encoding, headers
from rewind.transforms.records.headers import Stamp
from rewind.transforms.values import json_text, parsing
from rewind.transforms.values.parsing import REASON, REJECT, SRC
from rewind.transforms.values.quoting import structure


def usable(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Return the parsed columns of the records that reach a logic with state: neither rejected nor tombstones."""
    parsed = parsing.parse(records, pipeline)
    return parsed.where(F.col(REASON).isNull() & F.col(f"{SRC}.value").isNotNull()).drop(REASON)


def encode(rows: DataFrame, pipeline: Pipeline, contract: Contract, stamp: Stamp, batch: int) -> DataFrame:
    """Return the rows of what a logic with state gave: each a new version of its key.

    Args:
        rows: What the logic gave.
        pipeline: The pipeline.
        contract: What `examine` said of the logic.
        stamp: What to write on each row.
        batch: The micro-batch; one that is run again writes the same versions. Of a repair, live's newest.

    Returns:
        Columns `encoding.ROW_COLUMNS`.
    """
    reason = F.col(REJECT) if REJECT in rows.columns else F.lit(None).cast("string")
    key, text = encoding.key_text(pipeline, contract), _text(pipeline, contract)
    origin = (coordinates.SPAN, headers.span(stamp)) if contract.spanned else (coordinates.SOURCE, headers.place(stamp))
    version = (coordinates.VERSION, F.lit(coordinates.version(stamp.epoch, batch, stamp.repair)))
    repair = [(coordinates.REPAIR, F.lit(str(stamp.repair)))] if stamp.repair else []
    # A span has no record whose bytes a dead letter could hold; a logic that rejects has none (`examine`).
    record = (key, text) if contract.spanned else (F.col(f"{SRC}.key"), F.col(f"{SRC}.value"))
    dead = reason.isNotNull()
    return rows.select(
        F.when(dead, stamp.dead_letter_topic).otherwise(stamp.output_topic).alias("topic"),
        F.when(dead, record[0]).otherwise(key).alias("key"),
        F.when(dead, record[1]).otherwise(text).alias("value"),
        headers.written([*headers.of_job(stamp), version, origin, *repair], reason).alias("headers"),
        F.when(~dead, structure(contract.schema.names)).alias("fields"),
    )


def values(rows: DataFrame, pipeline: Pipeline, contract: Contract) -> DataFrame:
    """Return what a logic with state gave as `key` and `value` of its output, and nothing else; rejects left out."""
    kept = rows.where(F.col(REJECT).isNull()) if REJECT in rows.columns else rows
    return kept.select(encoding.key_text(pipeline, contract).alias("key"), _text(pipeline, contract).alias("value"))


def _text(pipeline: Pipeline, contract: Contract) -> Column:
    return json_text.of_columns(contract.schema, pipeline.exact).cast("binary")


def encode_rejects(records: DataFrame, pipeline: Pipeline, contract: Contract, stamp: Stamp) -> DataFrame:
    """Return the dead letters of source records: what never reaches a logic with state. A tombstone is none.

    Returns:
        Columns `encoding.ROW_COLUMNS`.
    """
    parsed = parsing.parse(records, pipeline)
    return encoding.rows_of(parsed.where(F.col(REASON).isNotNull()), pipeline, contract, stamp)
