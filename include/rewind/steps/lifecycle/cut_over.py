"""Move the live pointer: what came since the verdict is checked first, then one compare-and-set."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rewind.adapters import checkpoint
from rewind.adapters.session import session
from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, RetryError, WorldMovedError
from rewind.core.model import Generation
from rewind.core.offsets import Ranges, all_told, reached, total
from rewind.core.pipeline import KAFKA
from rewind.core.planning.consumer_groups import Sides
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import generations, leases, observation, progress, rewinds, verdicts
from rewind.registry.database import now, reading, vector_from_json, vector_to_json, writing
from rewind.registry.verdicts import Verdict
from rewind.runtime import announce, consumer_groups, publishing, rights
from rewind.runtime.drivers import supervise
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.steps.compare.new_rows import Since, compared_since
from rewind.steps.lifecycle import consumer_groups as moving

OLDEST_VERDICT = timedelta(days=1)
PATIENCE_SECONDS = 120.0
"""How long the candidate may take to pass live's frozen positions."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Switch:
    """What a cut-over is about."""

    rewind_id: str
    plan: Plan
    live: Generation
    candidate: Generation


def run(settings: Settings, rewind_id: str) -> None:
    """Make the approved candidate of a rewind live and announce it; again is harmless.

    Raises:
        RefusedError: No verdict to act on, not approved, of another attempt, too old, the candidate is dead, or a
            consumer group cannot be moved.
        WorldMovedError: The pointer moved, or what came since the verdict differs in a new way.
        RetryError: The candidate does not pass live's positions in time.
    """
    recording.recorded(settings, rewind_id, "cut_over", lambda _: _cut_over(settings, rewind_id))


def _cut_over(settings: Settings, rewind_id: str) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        rewind, plan = rewinds.read_active(connection, rewind_id)
        done = rewinds.fact(connection, rewind_id, "cut_over")
        live = generations.read(connection, plan.live_job_id)
        candidate = generations.read(connection, rewind.job_id)
    switch = Switch(rewind_id, plan, live, candidate)
    if done is None:
        done = _switch(settings, switch)
    else:
        log.info("already done: %s is live at epoch %d", plan.job_id, done["epoch"])
    published = publishing.awaited(settings, candidate, done["epoch"])
    # Before the announcement: whoever hears of it finds its position there.
    moved = consumer_groups.carry_out(settings, Broker(settings), rewind_id)
    announce.publish(settings, plan.request.pipeline, done["epoch"])
    return {**done, **published, "consumers": moved}


def _switch(settings: Settings, switch: Switch) -> dict[str, Any]:
    verdict = _ready(settings, switch)
    rights.before_a_switch(Broker(settings), (switch.live, switch.candidate))
    _check_consumers(settings, switch)
    recheck = _recheck(settings, switch, verdict)
    with publishing.stopped(settings, switch.live, switch.plan.epoch, switch.rewind_id):
        _prove_past(settings, switch)
        _plan_consumers(settings, switch)
        return _moved(settings, switch, recheck)


def _moved(settings: Settings, switch: Switch, recheck: Since) -> dict[str, Any]:
    again = possibly_repeated(settings, switch.live)
    plan = switch.plan
    grace = timedelta(seconds=plan.request.grace_seconds)
    with side_effect("pointer.switch"), writing(settings.registry_url) as connection:
        # The approval is read again in the transaction that acts on it.
        verdicts.approved(connection, switch.rewind_id)
        publishing.check_stopped(connection, switch.live, plan.epoch, switch.rewind_id)
        epoch = generations.switch(connection, plan.request.pipeline, plan.live_job_id, plan.job_id, plan.epoch, grace)
        generations.end_older_standbys(connection, plan.request.pipeline, plan.live_job_id)
        approved = verdicts.newest(connection, switch.rewind_id)
        announce.prepare(connection, plan.request.pipeline, epoch, plan.live_job_id, plan.job_id, approved)
        body = {"epoch": epoch, "from": plan.live_job_id, "to": plan.job_id}
        body |= {"recheck": dict(recheck.found.counts), "frontier": observation.to_json(recheck.frontier)}
        body |= {"possibly_repeated": {str(p): [r.start, r.end] for p, r in again.items()}}
        done = rewinds.fix(connection, switch.rewind_id, "cut_over", body)
    log.info("%s is live at epoch %d, %s is standby", plan.job_id, epoch, plan.live_job_id)
    return dict(done)


def _ready(settings: Settings, switch: Switch) -> Verdict:
    with reading(settings.registry_url) as connection:
        verdict = verdicts.approved(connection, switch.rewind_id)
        found = generations.live(connection, switch.plan.request.pipeline)
        lease = leases.read(connection, switch.plan.job_id)
    if found is None or (found[0].job_id, found[1]) != (switch.plan.live_job_id, switch.plan.epoch):
        where = f"{found[0].job_id} at epoch {found[1]}" if found else "nowhere"
        raise WorldMovedError("pipeline", f"the pointer is at {where}", "Abort, and make a new plan")
    if now() - verdict.at > OLDEST_VERDICT:
        raise RefusedError("verdict", f"is of {verdict.at}Z, older than {OLDEST_VERDICT}", "Run validate again")
    if lease is None or lease.holder is None or not leases.alive(lease.holder):
        raise RefusedError(
            "job_id", f"{switch.plan.job_id} has no living driver", "Look at its logs, let it start again"
        )
    with side_effect("cut_over.intend"), writing(settings.registry_url) as connection:
        rewinds.fix(connection, switch.rewind_id, "cut_over.intent", {"verdict_attempt": verdict.attempt})
    return verdict


def _check_consumers(settings: Settings, switch: Switch) -> None:
    """Refuse a group that cannot be moved before anything else is done."""
    groups = switch.plan.request.consumer_groups
    if groups:
        moving.check(settings, Sides(switch.live, switch.candidate), groups)


def _plan_consumers(settings: Settings, switch: Switch) -> None:
    request = switch.plan.request
    if request.consumer_groups:
        asked = moving.Asked(request.consumer_groups, request.only_new, request.replay_from)
        moving.planned(settings, switch.rewind_id, Sides(switch.live, switch.candidate), asked)


def _recheck(settings: Settings, switch: Switch, verdict: Verdict) -> Since:
    """Compare what both jobs wrote since the verdict's ceiling."""
    with reading(settings.registry_url) as connection:
        judged = observation.frontier_of(connection, switch.rewind_id, verdict)
    came = compared_since(settings, switch.plan, switch.live, switch.candidate, judged)
    new = came.new_to(verdict)
    if new:
        problem = f"what came since the verdict differs in a new way: {new}"
        raise WorldMovedError("verdict", problem, "Run validate again, and look at it")
    if verdict.verdict == lifecycle.UNCOMPARED:
        log.warning("%s", verdict.reason)
    else:
        log.info("rechecked %d rows since the verdict", came.found.counts["rows"])
    return came


def possibly_repeated(settings: Settings, live: Generation) -> Ranges:
    """Return the source offsets of a batch that live's driver, dead by now, began and did not commit.

    A topic holds some of its rows already, and holds them twice once the driver is back. The position of a job is that
    of its last committed batch all the same.
    """
    with reading(settings.registry_url) as connection:
        lease = leases.read(connection, live.job_id)
    lives = lease is not None and lease.holder is not None and leases.alive(lease.holder)
    pipeline, place = live.declared, supervise.checkpoint_folder(settings, live.job_id)
    if lives or pipeline.output_format != KAFKA or not place.exists():
        return {}
    again = checkpoint.uncommitted(session(f"cut over {live.job_id}", pipeline.session_time_zone), str(place))
    if total(again):
        log.warning("%s was killed within a batch: possibly repeated are %s", live.job_id, all_told(again))
    return again


def _prove_past(settings: Settings, switch: Switch) -> None:
    """Wait until the candidate has passed the positions that live has now, frozen."""
    with side_effect("cut_over.freeze"), writing(settings.registry_url) as connection:
        now_at = progress.position(connection, switch.live.job_id, switch.live.handoff)
        name = "cut_over.live_positions"
        frozen = vector_from_json(rewinds.fix(connection, switch.rewind_id, name, vector_to_json(now_at)))
    if publishing.shared(switch.live):
        # Where an attempt before this one failed, live has published more since.
        frozen = now_at
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with reading(settings.registry_url) as connection:
            at = progress.position(connection, switch.candidate.job_id, switch.candidate.handoff)
        if reached(at, frozen):
            return
        if time.monotonic() > deadline:
            raise RetryError(f"{switch.plan.job_id} is at {at}, not past live's {frozen}")
        time.sleep(0.5)
