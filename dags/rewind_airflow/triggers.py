"""Operators that start runs of other DAGs, decided by the registry while they run."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import Connection

from rewind.core import lifecycle
from rewind.core.observing import ROLL_BACK
from rewind.registry import generations, observation, plannings, rewinds, streams, verdicts
from rewind.registry.database import writing
from rewind_airflow import run, supervision
from rewind_airflow.reactions import reactions


class _Trigger(TriggerDagRunOperator):
    # Neither a logical date, which two triggers of one instant could not share, nor Jinja in what users typed.
    template_fields = ()

    def __init__(self, *, trigger_dag_id: str, **kwargs: Any) -> None:
        """Trigger runs of a DAG without a logical date."""
        super().__init__(
            trigger_dag_id=trigger_dag_id, logical_date=None, openlineage_inject_parent_info=False, **kwargs
        )


class StartStream(_Trigger):
    """Wishes that the live job of a pipeline runs, and starts its supervisor unless there is one."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Start a stream of a pipeline."""
        # Whoever watches the streams may have been faster: its run does as well.
        super().__init__(trigger_dag_id=supervision.stream_dag(pipeline), skip_when_already_exists=True, **kwargs)
        self.pipeline = pipeline

    def job_id(self, connection: Connection, context: Context) -> str:  # noqa: ARG002
        """Return the job to start; the wish falls in the same transaction."""
        found = generations.live(connection, self.pipeline)
        if found is None:
            raise AirflowFailException(f"{self.pipeline} has no live job: deploy it first")
        return found[0].job_id

    def execute(self, context: Context) -> None:
        """Wish, then trigger."""
        with reactions(), writing(run.settings().registry_url) as connection:
            job_id = self.job_id(connection, context)
            stream = supervision.wish_running(connection, job_id, streams.GENERATION)
        if supervision.supervised(context["ti"], stream):
            self.log.info("%s is supervised already", job_id)
            return
        started = supervision.trigger(context["ti"], stream)
        self.trigger_run_id, self.conf = started["trigger_run_id"], started["conf"]
        super().execute(context)


class StartCandidate(StartStream):
    """Wishes that the candidate of a rewind runs, and starts its supervisor; a repair has none."""

    def job_id(self, connection: Connection, context: Context) -> str:
        """Return the candidate and record the step."""
        rewind_id = run.rewind_id(context)
        rewind, plan = rewinds.read_active(connection, rewind_id)
        if plan.shape.repairs:
            raise AirflowSkipException("a repair has no candidate stream")
        attempt = rewinds.begin_step(connection, rewind_id, "start_candidate")
        rewinds.end_step(connection, rewind_id, "start_candidate", attempt, "done", {"job_id": rewind.job_id})
        return rewind.job_id


class TriggerAbort(_Trigger):
    """Starts the abort of the run's rewind, if the registry says that it is active and has not switched."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Abort a rewind of a pipeline."""
        super().__init__(trigger_dag_id=f"abort_{pipeline}", **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Look at the registry, then trigger or skip."""
        rewind_id = run.rewind_id(context)
        with reactions(), writing(run.settings().registry_url) as connection:
            kept = why_kept(connection, rewind_id)
            plannings.fail(connection, rewind_id, f"a step of run {context['ti'].run_id} failed")
            answer = None if kept else verdicts.approval(connection, rewind_id)
        if kept:
            raise AirflowSkipException(kept)
        reason = f"a step of run {context['ti'].run_id} failed"
        if answer is not None and answer.answer == "reject":
            reason = f"rejected by {answer.person}: {answer.reason or 'no reason given'}"
        self.conf = {"rewind_id": rewind_id, "reason": reason}
        super().execute(context)


class TriggerRollback(_Trigger):
    """Starts the rollback of the run's rewind, if it asks for one when differences appear and there are some."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Roll a rewind of a pipeline back."""
        # One run a rewind, and so one rollback: a repeat finds it there.
        super().__init__(trigger_dag_id=f"rollback_{pipeline}", skip_when_already_exists=True, **kwargs)

    def execute(self, context: Context) -> None:
        """Look at the registry, then trigger or skip."""
        rewind_id = run.rewind_id(context)
        with reactions(), writing(run.settings().registry_url) as connection:
            rewind = rewinds.find(connection, rewind_id)
            plan = None if rewind is None else rewinds.read_plan(connection, rewind.plan_id)
            observed = observation.read(connection, rewind_id)
        if rewind is None or plan is None:
            raise AirflowSkipException(f"rewind {rewind_id} was never opened: there is nothing to roll back")
        if rewind.state != lifecycle.ACTIVE:
            raise AirflowSkipException(f"rewind {rewind_id} is {rewind.state}")
        if plan.request.on_difference != ROLL_BACK or not observed.differences:
            raise AirflowSkipException(f"rewind {rewind_id} asks for no rollback: {observed.told()}")
        self.trigger_run_id = f"observed.{rewind_id}"
        self.conf = {"dry_run": False, "to": plan.live_job_id, "reason": f"{rewind_id}: {observed.told()}"}
        super().execute(context)


def why_kept(connection: Connection, rewind_id: str) -> str:
    """Return why a rewind must not be aborted; empty when it may be."""
    rewind = rewinds.find(connection, rewind_id)
    if rewind is None:
        return f"rewind {rewind_id} was never opened: there is nothing to take back"
    if rewind.state != lifecycle.ACTIVE:
        return f"rewind {rewind_id} is {rewind.state}"
    live = generations.live(connection, rewind.pipeline)
    if (live is not None and live[0].job_id == rewind.job_id) or rewinds.fact(connection, rewind_id, "cut_over"):
        return f"the pointer has moved to {rewind.job_id}: clear the failed task to go on, or roll back"
    return ""
