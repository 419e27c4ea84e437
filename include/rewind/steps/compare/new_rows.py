"""Compare what both jobs of a rewind wrote since they were compared last."""

from __future__ import annotations

from dataclasses import dataclass

from rewind.adapters.session import session
from rewind.core import comparing
from rewind.core.horizon import Frontier
from rewind.core.model import Generation
from rewind.core.offsets import lower, total
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import reading
from rewind.registry.verdicts import Verdict
from rewind.steps.compare import comparison, findings
from rewind.steps.compare.findings import Found


@dataclass(frozen=True)
class Since:
    """What came since the last comparison.

    Attributes:
        found: What was found in it.
        frontier: How far both outputs are compared now.
    """

    found: Found
    frontier: Frontier

    def new_to(self, verdict: Verdict) -> dict[str, int]:
        """Return the classes of differences that a verdict lacked, with their rows."""
        counts = self.found.counts
        return {name: counts[name] for name in findings.BAD if counts.get(name) and not verdict.counts.get(name)}


def compared_since(
    settings: Settings, plan: Plan, live: Generation, candidate: Generation, frontier: Frontier
) -> Since:
    """Compare up to what both jobs have committed by now, reading only what can hold it.

    That nothing came since is an answer; that nothing is to be compared was asked for.

    Raises:
        IntegrityError: An output lost records that were compared.
    """
    if plan.request.compare == comparing.NONE:
        return Since(Found({"rows": 0}), frontier)
    # The positions first: what was committed by then is in the outputs as they are described next.
    with reading(settings.registry_url) as connection:
        positions = [progress.position(connection, job.job_id, job.handoff) for job in (live, candidate)]
    reached = lower(*positions)
    came = frontier.since(reached)
    bounds = comparison.bounds_of(settings, live, candidate, frontier.closed)
    if not total(came) and (bounds is None or bounds.closed_by <= frontier.closed):
        return Since(Found({"rows": 0}), frontier)
    spark = session(f"compare {plan.job_id}", plan.config["session_time_zone"])
    found = comparison.compared(spark, settings, live, candidate, came, bounds, frontier)
    ceiling = {p: max(offset, reached.get(p, 0)) for p, offset in {**reached, **frontier.ceiling}.items()}
    closed = frontier.closed if bounds is None else bounds.closed_by
    return Since(found, Frontier(ceiling, found.unread, closed, found.ends))
