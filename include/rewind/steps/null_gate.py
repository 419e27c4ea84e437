"""The gate on nulls: a column of the candidate may not be null much more often than live's.

A change that was declared as expected hides what else becomes of a column, as when its new type cannot hold the old
values. So the share of nulls is gated by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import outputs as adapter
from rewind.core import lifecycle
from rewind.core.offsets import Ranges
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.transforms import compare, keyed, nulls, outputs, parsing
from rewind.transforms.keyed import Bounds


@dataclass(frozen=True)
class Share:
    """Which share of the compared rows has no value in a column, on either side."""

    live: float
    candidate: float


def shares(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    bounds: Bounds | None,
) -> dict[str, Share]:
    """Return the share of nulls of each column that both outputs have, over what was compared.

    Of a pipeline without state every row counts, of one with state the newest version of each closed result.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        horizon: Source offsets that both hold.
        bounds: For pipelines with state, which of their results can be compared.
    """
    sides = (live, candidate)
    if bounds is None:
        values = [_rows(spark, settings, side, horizon) for side in sides]
    else:
        values = _results(spark, settings, live, candidate, bounds)
    schemas = [parsing.declared(side.frozen["output_schema"]) for side in sides]
    # One row a side.
    found = [nulls.shares(rows, schema).first() for rows, schema in zip(values, schemas, strict=True)]
    both = [name for name in schemas[0].names if name in schemas[1].names]
    pairs = {name: tuple(row[name] for row in found if row is not None) for name in both}
    return {name: Share(*pair) for name, pair in pairs.items() if None not in pair}


def gated(verdict: str, reason: str, found: Mapping[str, Share], most: float) -> tuple[str, str]:
    """Return a verdict and its reason, with what the gate adds: it turns a pass into a fail.

    Args:
        verdict: The verdict so far.
        reason: Why it is not a pass.
        found: Shares of nulls, by column (`shares`).
        most: By how much the candidate's share may exceed live's.
    """
    wrong = {name: share for name, share in found.items() if share.candidate - share.live > most}
    if not wrong or verdict == lifecycle.ERROR:
        return verdict, reason
    told = [f"{name} is null in {share.candidate:.1%}, in live in {share.live:.1%}" for name, share in wrong.items()]
    return lifecycle.FAIL, "; ".join([*([reason] if reason else []), *told])


def _rows(spark: SparkSession, settings: Settings, side: Generation, horizon: Ranges) -> DataFrame:
    read = adapter.read(spark, settings, side).rows.where(F.col("kind") == outputs.ROW)
    return compare.from_floor(read, horizon).where(compare.comparable(horizon))


def _results(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, bounds: Bounds
) -> list[DataFrame]:
    newest = [keyed.newest(adapter.read_keyed(spark, settings, side)[1]) for side in (live, candidate)]
    judged = keyed.paired(newest[0], newest[1], bounds).where(F.col("state") == keyed.JUDGED)
    return [judged.select(F.col(f"{side}.value").alias("value")) for side in ("l", "c")]
