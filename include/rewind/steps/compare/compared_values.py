"""The values that a comparison compared: what gates read beside it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import outputs as adapter
from rewind.core.model import Generation
from rewind.core.offsets import Ranges, Vector
from rewind.core.settings import Settings
from rewind.transforms.comparing import compare, keyed
from rewind.transforms.comparing.keyed import Bounds
from rewind.transforms.records import outputs
from rewind.transforms.values import parsing


def both(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    bounds: Bounds | None,
    unread: Mapping[str, Vector] | None = None,
) -> list[DataFrame]:
    """Return the values of both outputs over what was compared: column `value`, JSON texts as bytes.

    Of a pipeline without state every row counts, of one with state the newest version of each closed result.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        horizon: Source offsets that both hold.
        bounds: For pipelines with state, which of their results can be compared.
        unread: What a comparison up to the horizon's floor left unread; None to read both outputs whole.
    """
    if bounds is not None:
        return _results(spark, settings, live, candidate, bounds, unread)
    return [_rows(spark, settings, side, horizon, unread) for side in (live, candidate)]


def columns(values: DataFrame, candidate: Generation) -> DataFrame:
    """Return values of a candidate as the columns of its output; tombstones are no values."""
    schema = parsing.declared(candidate.output_schema)
    fields = F.from_json(F.col("value").cast("string"), schema).alias("fields")
    return values.where(F.col("value").isNotNull()).select(fields).select("fields.*")


def _rows(
    spark: SparkSession, settings: Settings, side: Generation, horizon: Ranges, unread: Mapping[str, Vector] | None
) -> DataFrame:
    read = adapter.read(spark, settings, side, unread).rows.where(F.col("kind") == outputs.ROW)
    return compare.from_floor(read, horizon).where(compare.comparable(horizon))


def _results(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    bounds: Bounds,
    unread: Mapping[str, Vector] | None,
) -> list[DataFrame]:
    newest = [keyed.newest(adapter.read_keyed(spark, settings, side, unread)[1]) for side in (live, candidate)]
    judged = keyed.paired(newest[0], newest[1], bounds).where(F.col("state") == keyed.JUDGED)
    return [judged.select(F.col(f"{side}.value").alias("value")) for side in ("l", "c")]
