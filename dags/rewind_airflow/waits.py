"""Waits for streams and for steps of a rewind: reschedule sensors, which hold no slot between two looks."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import Connection

from rewind.core import comparing, lifecycle
from rewind.core.errors import RetryError
from rewind.core.model import held_back
from rewind.core.observing import ROLL_BACK, next_look
from rewind.core.offsets import lower, total
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import generations, leases, observation, progress, rewinds, streams
from rewind.registry.database import now, reading, writing
from rewind.registry.observation import Observed
from rewind.registry.snapshot import snapshot
from rewind.runtime import ownership
from rewind.runtime.drivers import supervise
from rewind_airflow import links, notify, run, sights, steps, supervision
from rewind_airflow.notify import Drifted, Quarantined
from rewind_airflow.reactions import final_reactions
from rewind_airflow.sights import Race
from rewind_airflow.submits import StepSubmit

# Each look is a process, and one that comes before the scheduler has seen the end of the last counts as failed.
LOOK_EVERY = timedelta(seconds=10)
FOR_EVER = timedelta(days=365)
CATCH_UP_LIMIT = timedelta(hours=1)


class Wait(BaseSensorOperator):
    """A sensor that gives its slot back between two looks, and looks again when a look could not be had."""

    def __init__(self, *, patience: int = 100, **kwargs: Any) -> None:
        """Look every few seconds, for as long as it takes.

        Args:
            patience: How many looks may fail. A scheduler under load mistakes one for failed now and then.
            kwargs: Arguments of every operator.
        """
        kwargs |= {"retries": patience, "retry_delay": LOOK_EVERY}
        super().__init__(mode="reschedule", poke_interval=LOOK_EVERY, timeout=FOR_EVER, **kwargs)

    def poke(self, context: Context) -> bool:
        """Return whether the wait is over."""
        try:
            return self.over(context, run.settings())
        except RetryError as error:
            self.log.warning("%s; looking again in %s s", error, self.poke_interval)
            return False

    def over(self, context: Context, settings: Settings) -> bool:
        """Return whether the wait is over.

        Raises:
            RetryError: It could not be found out now.
        """
        raise NotImplementedError


class Supervise(Wait):
    """Watches over one stream until it is drained: starts its driver when none lives, attaches when one does."""

    def __init__(self, *, pipeline: str = "", owner: str = "", **kwargs: Any) -> None:
        """Supervise a stream.

        Args:
            pipeline: Whose live job is meant when the run names no owner.
            owner: The stream, where it is always the same.
            kwargs: Arguments of every operator.
        """
        # A supervision must not end by failed looks, however many.
        super().__init__(pool=supervision.POOL, patience=10_000, **kwargs)
        self.pipeline = pipeline
        self.owner_name = owner

    def over(self, context: Context, settings: Settings) -> bool:
        """Look at the driver once and show where it is."""
        with final_reactions():
            owner = self.owner_name or self._asked(context, settings) or self._live(settings)
            seen = supervise.look(settings, owner)
        self.log.info("%s; %s", seen.message, sights.of_stream(settings, owner))
        if seen.state == supervise.QUARANTINED:
            raise Quarantined(seen.message)
        return seen.state == supervise.DRAINED

    def _asked(self, context: Context, settings: Settings) -> str:
        """Return the job that the run names, which must be one of the pipeline; empty when it names none."""
        owner = supervision.asked_owner(context)
        if owner:
            # Each look asks: it must not wait for the lock of the one writer.
            with snapshot(settings.registry_url) as connection:
                ownership.refuse_job_of_another(connection, owner, self.pipeline, "owner")
        return owner

    def _live(self, settings: Settings) -> str:
        with reading(settings.registry_url) as connection:
            found = generations.live(connection, self.pipeline)
        if found is None:
            raise AirflowFailException(f"owner: is empty and {self.pipeline} has no live job. Deploy it, or name one")
        return found[0].job_id


class CatchUp(Wait):
    """Waits until the candidate is close enough to live to be compared with it."""

    operator_extra_links = (links.PageLink(),)

    def over(self, context: Context, settings: Settings) -> bool:
        """Look at both positions, and give up on a candidate that is set aside or does not come closer in time."""
        rewind_id = run.rewind_id(context)
        with final_reactions(), writing(settings.registry_url) as connection:
            plan = rewinds.read_active(connection, rewind_id)[1]
            if plan.shape.repairs:
                raise AirflowSkipException("a repair has no candidate stream")
            steps.begin_once(connection, rewind_id, "catch_up")
        since = context["ti"].get_first_reschedule_date(context)
        race = sights.race(settings, plan)
        gate = int(plan.config["lag_gate"])
        text = "%s at %s: %s behind live, %s behind what can be read; gate %s%s"
        held = "".join(f"; {line}" for line in held_back(race.held))
        self.log.info(text, plan.job_id, race.candidate, race.behind_live, race.lag, gate, held)
        return self._settle(settings, rewind_id, race, gate, since)

    def _settle(self, settings: Settings, rewind_id: str, race: Race, gate: int, since: datetime | None) -> bool:
        evidence = {"behind_live": race.behind_live, "lag": race.lag, "gate": gate, "held_back": total(race.held)}
        with writing(settings.registry_url) as connection:
            problem = race.quarantined or _late(since, race)
            if problem:
                steps.end(connection, rewind_id, "catch_up", "failed", {**evidence, "problem": problem})
            elif race.close(gate):
                steps.end(connection, rewind_id, "catch_up", "done", evidence)
                return True
        if problem:
            raise AirflowFailException(f"catch_up: {problem}")
        return False


class Observe(Wait):
    """Watches the pipeline for a while after its switch, compares both jobs meanwhile, then ends the rewind."""

    operator_extra_links = (links.PageLink(),)

    def __init__(self, **kwargs: Any) -> None:
        """Observe a switch."""
        super().__init__(**kwargs)
        self._comparison: StepSubmit | None = None

    def on_kill(self) -> None:
        """End the comparison, if one runs."""
        if self._comparison is not None:
            self._comparison.on_kill()

    def over(self, context: Context, settings: Settings) -> bool:
        """Return whether the period is over and the new live job is well, or a person ended it."""
        rewind_id = run.rewind_id(context)
        with final_reactions(), writing(settings.registry_url) as connection:
            state = rewinds.read(connection, rewind_id).state
            if state == lifecycle.ROLLED_BACK:
                steps.end(connection, rewind_id, "observe", "failed", {"state": state})
                raise AirflowFailException(f"rewind {rewind_id} was rolled back: its job is live no more")
            if state != lifecycle.ACTIVE:
                self.log.info("rewind %s has ended already", rewind_id)
                return True
            plan = rewinds.read_active(connection, rewind_id)[1]
            steps.begin_once(connection, rewind_id, "observe")
            pending = _pending(connection, rewind_id, plan)
            observed = observation.read(connection, rewind_id)
            evidence = {"live": plan.job_id, "differences": dict(observed.differences)}
            due = _comparison_due(connection, rewind_id, plan, observed.after)
            back = bool(observed.differences) and plan.request.on_difference == ROLL_BACK
            if back:
                steps.end(connection, rewind_id, "observe", "failed", {**evidence, "problem": observed.told()})
            elif not pending and not due:
                steps.end(connection, rewind_id, "observe", "done", evidence)
                rewinds.close(connection, rewind_id, lifecycle.FINISHED)
        self._tell(observed)
        if back:
            raise Drifted(f"{observed.told()}: the rewind asks to roll back, and the task roll_back does")
        if due:
            self._compare(context)
            self._tell_of_drift(context, settings, observed)
            return False
        self.log.info("%s; %s", pending or "the rewind has ended", sights.of_stream(settings, plan.job_id))
        return not pending

    def _tell(self, observed: Observed) -> None:
        # The counts last: a failed task is shown by the end of its log.
        for row in observed.sample:
            self.log.warning("differs: %s", json.dumps(row, default=str))
        if observed.looks:
            self.log.log(logging.WARNING if observed.differences else logging.INFO, "%s", observed.told())

    def _tell_of_drift(self, context: Context, settings: Settings, before: Observed) -> None:
        with final_reactions(), writing(settings.registry_url) as connection:
            now = observation.read(connection, run.rewind_id(context))
        # Once: with what the first comparison found that found any.
        if now.differences and not before.differences:
            notify.tell(context, notify.DRIFT, now.told())

    def _compare(self, context: Context) -> None:
        """Submit one comparison and follow it to its end: data is touched by a spark-submit alone."""
        # No task of the graph: how many there will be is known only when they are due.
        self._comparison = StepSubmit(task_id="recheck")
        self._comparison.execute(context)


def _late(since: datetime | None, race: Race) -> str:
    if since is None or datetime.now(UTC) - since < CATCH_UP_LIMIT:
        return ""
    # One that has read all it can waits; one that has not is slow.
    why = "; ".join(held_back({} if race.lag else race.held)) or "is it slower than live?"
    return f"the candidate is {race.behind_live:,} offsets behind live after {CATCH_UP_LIMIT}: {why}"


def _comparison_due(connection: Connection, rewind_id: str, plan: Plan, last: timedelta) -> bool:
    """Return whether both jobs have written what is to be compared now."""
    frontier = observation.frontier(connection, rewind_id)
    switched = rewinds.fact_at(connection, rewind_id, "cut_over")
    if frontier is None or switched is None or rewinds.fact(connection, rewind_id, "finish_now"):
        return False
    asked = plan.request
    if asked.compare == comparing.NONE:
        return False
    period, every = timedelta(seconds=asked.observe_seconds), timedelta(seconds=asked.compare_every_seconds)
    if last >= period or now() - switched < next_look(last, every, period):
        return False
    jobs = [generations.read(connection, job) for job in (plan.live_job_id, plan.job_id)]
    positions = [progress.position(connection, job.job_id, job.handoff) for job in jobs]
    return total(frontier.since(lower(*positions))) > 0


def _pending(connection: Connection, rewind_id: str, plan: Plan) -> str:
    switched = rewinds.fact_at(connection, rewind_id, "cut_over")
    if switched is None:
        raise AirflowFailException(f"rewind {rewind_id} has no cut-over on record, whatever its tasks say")
    if rewinds.fact(connection, rewind_id, "finish_now"):
        return ""
    left = switched + timedelta(seconds=plan.request.observe_seconds) - now()
    if left > timedelta(0):
        return f"observing for {left} more"
    return _illness(connection, plan.job_id)


def _illness(connection: Connection, job_id: str) -> str:
    stream, lease = streams.read(connection, job_id), leases.read(connection, job_id)
    if stream is not None and stream.quarantined_at is not None:
        return f"{job_id} is quarantined ({stream.cause}): fix it or roll back"
    if lease is None or lease.holder is None or not leases.alive(lease.holder):
        return f"{job_id} has no living driver: waiting until it is back"
    return ""
