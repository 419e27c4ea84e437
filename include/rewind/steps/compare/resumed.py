"""Go on with a check where the last one ended: only what was written since is read, and its counts are added."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from rewind.core.model import Generation
from rewind.core.offsets import Ranges, ends, starts
from rewind.core.settings import Settings
from rewind.registry.check_results import Checked
from rewind.steps.compare import compared_values, comparison, findings, samples
from rewind.steps.compare.findings import Found
from rewind.transforms.comparing import compare
from rewind.transforms.comparing.keyed import Bounds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TakenUp:
    """A check that went on from another.

    Attributes:
        before: The other.
        came: Source offsets that were compared anew.
        bounds: For pipelines with state, which results were.
        found: What both found together.
    """

    before: Checked
    came: Ranges
    bounds: Bounds | None
    found: Found

    def values(
        self, spark: SparkSession, settings: Settings, live: Generation, candidate: Generation
    ) -> list[DataFrame]:
        """Return the values of both outputs over what was compared anew (`compared_values.both`)."""
        unread = self.before.frontier.unread
        return compared_values.both(spark, settings, live, candidate, self.came, self.bounds, unread)


def go_on(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    horizon: Ranges,
    before: Checked | None,
) -> TakenUp | None:
    """Compare what came since a check, and return it with what that one found; None where all has to be read.

    That is so when there was none, when its floor was another, and when rows were written since of what it judged: a
    repeat, or a repair. What was said of them may no longer be so, and their other side stands anywhere.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        horizon: Source offsets that both must hold.
        before: The check, of the same outputs by the same rules.
    """
    if before is None or not before.frontier.ends or before.floor != starts(horizon):
        return None
    came = before.frontier.since(ends(horizon))
    bounds = comparison.bounds_of(settings, live, candidate, before.frontier.closed)
    found = comparison.compared(spark, settings, live, candidate, came, bounds, before.frontier)
    if found.touched:
        log.info("%d rows were written since of what was judged: both outputs are read completely", found.touched)
        return None
    return TakenUp(before, came, bounds, _together(before, found))


def _together(before: Checked, found: Found) -> Found:
    counts = _sum(before.counts, found.counts)
    # What was open then has been judged by now, or is open still. What rules of rows miss is counted on the sum.
    counts[compare.OPEN] = found.counts[compare.OPEN]
    counts.pop(findings.MISCOUNTED, None)
    fields = findings.together(before.fields, found.fields)
    sample = (*before.sample, *found.sample)[: samples.MOST]
    return replace(found, counts=counts, fields=fields, sample=sample)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
