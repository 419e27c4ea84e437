"""The gate on nulls: a column of the candidate may not be null much more often than live's.

A change that was declared as expected hides what else becomes of a column, as when its new type cannot hold the old
values. So the share of nulls is gated by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from rewind.core import lifecycle
from rewind.core.offsets import Ranges
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps import compared_values
from rewind.transforms import nulls, parsing
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

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        horizon: Source offsets that both hold.
        bounds: For pipelines with state, which of their results can be compared.
    """
    values = compared_values.both(spark, settings, live, candidate, horizon, bounds)
    schemas = [parsing.declared(side.frozen["output_schema"]) for side in (live, candidate)]
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
