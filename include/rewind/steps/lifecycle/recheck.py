"""Compare what both jobs wrote since the switch, while it is observed: a new class of differences is told."""

from __future__ import annotations

import json
import logging
from typing import Any

from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.registry import generations, observation, publications, rewinds, verdicts
from rewind.registry.database import now, writing
from rewind.registry.observation import Look
from rewind.runtime import evidence
from rewind.steps.base import recording
from rewind.steps.compare.new_rows import compared_since

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str) -> None:
    """Compare what came since the last comparison of a rewind that has switched, and record what was found.

    Raises:
        RefusedError: The rewind is not active, or has not switched.
        IntegrityError: An output lost records that were compared.
    """
    recording.recorded(settings, rewind_id, "recheck", lambda attempt: _recheck(settings, rewind_id, attempt))


def _recheck(settings: Settings, rewind_id: str, attempt: int) -> dict[str, Any]:
    with writing(settings.registry_url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        verdict = verdicts.newest(connection, rewind_id)
        frontier = observation.frontier(connection, rewind_id)
        switched = rewinds.fact_at(connection, rewind_id, "cut_over")
        old, new = (generations.read(connection, job) for job in (plan.live_job_id, plan.job_id))
        published = publications.find(connection, plan.request.pipeline, plan.epoch + 1)
    if verdict is None or frontier is None or switched is None:
        raise RefusedError("rewind_id", f"{rewind_id} has no switch on record that can be compared on", "Run cut_over")
    after = now() - switched
    came = compared_since(settings, plan, old, new, frontier)
    differences = came.new_to(verdict)
    sample = [row for row in came.found.sample if row["class"] in differences]
    look = Look(after, came.frontier, came.found.counts, differences, sample)
    told = {"counts": dict(look.counts), "fields": dict(came.found.fields), "differences": differences}
    if published is not None:
        told["published"] = published.told()
    about = evidence.about(rewind_id, plan)
    evidence.write(settings, rewind_id, f"observed-{attempt}", {**told, "about": about, "sample": sample})
    with side_effect("observation.record"), writing(settings.registry_url) as connection:
        observation.record(connection, rewind_id, attempt, look)
        observed = observation.read(connection, rewind_id)
    log.info("%s", observed.told())
    if came.found.touched:
        log.warning("%d rows were written since of what was judged: repeats, or somebody's hand", came.found.touched)
    if differences:
        log.warning("the approved verdict lacked these: %s", json.dumps(sample, default=str))
    return told
