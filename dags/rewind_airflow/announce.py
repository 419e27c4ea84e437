"""The asset event that tells downstream DAGs of a switch: one an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import Connection, select, update

from rewind.core import comparing
from rewind.core.planning import shared_output
from rewind.declared import forms
from rewind.registry import generations, rewinds
from rewind.registry.database import now, reading, writing
from rewind.registry.schema import announcements
from rewind_airflow import run
from rewind_airflow.reactions import reactions


def live_asset(pipeline: str) -> Asset:
    """Return the asset that stands for the output of whichever generation of a pipeline is live."""
    return Asset(name=f"{pipeline}_live", uri=f"rewind://{pipeline}/live", group="rewind")


@dataclass(frozen=True)
class Switch:
    """One move of the pointer."""

    pipeline: str
    epoch: int
    job_id: str
    output_topic: str


class AnnounceSwitch(BaseOperator):
    """Emits the event of a switch, unless it was: each success of a task with outlets emits one anew."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Announce a switch of a pipeline."""
        # The asset is an inlet too, so that the task can see which events there have been.
        self.asset = live_asset(pipeline)
        super().__init__(inlets=[self.asset], outlets=[self.asset], **kwargs)

    def switched(self, connection: Connection, context: Context) -> Switch:
        """Return the switch that this run made."""
        raise NotImplementedError

    def execute(self, context: Context) -> None:
        """Emit the event of the switch's epoch, or skip."""
        with reactions(), reading(run.settings().registry_url) as connection:
            switch = self.switched(connection, context)
            noted = _noted(connection, switch)
            announced = connection.execute(select(announcements.c.body).where(_row(switch))).scalar_one()
        # The note alone proves nothing: a task that dies after it has emitted nothing.
        if noted and switch.epoch in _emitted(context, self.asset):
            raise AirflowSkipException(f"epoch {switch.epoch} of {switch.pipeline} was announced")
        extra: dict[str, Any] = {"job_id": switch.job_id, "epoch": switch.epoch, "output_topic": switch.output_topic}
        extra |= {name: announced[name] for name in (comparing.FIELD,) if name in announced}
        context["outlet_events"][self.asset].extra.update(extra)
        with reactions(), writing(run.settings().registry_url) as connection:
            connection.execute(update(announcements).where(_row(switch)).values(asset_at=now()))
        self.log.info("announced %s", extra)


class Announce(AnnounceSwitch):
    """Announces the cut-over of a rewind."""

    def switched(self, connection: Connection, context: Context) -> Switch:
        """Return what the plan of the run's rewind switched to."""
        plan = rewinds.read_plan(connection, rewinds.read(connection, run.rewind_id(context)).plan_id)
        output = shared_output.read_from(plan.config, plan.output_topic)
        return Switch(plan.request.pipeline, plan.epoch + 1, plan.job_id, output)


class AnnounceRollback(AnnounceSwitch):
    """Announces a rollback."""

    def switched(self, connection: Connection, context: Context) -> Switch:
        """Return what the run rolled back to; a dry run did nothing."""
        if run.given(context)["dry_run"]:
            raise AirflowSkipException("a dry run announces nothing")
        ti = context["ti"]
        rollback_id = forms.rollback_id(ti.dag_id, ti.run_id)
        done = rewinds.fact(connection, rollback_id, "rollback")
        if done is None:
            raise AirflowFailException(f"the registry has no rollback {rollback_id} to announce")
        job = generations.read(connection, done["to"])
        output = shared_output.read_from(job.frozen["config"], job.output_topic)
        return Switch(job.pipeline, done["epoch"], job.job_id, output)


def _row(switch: Switch) -> Any:
    return (announcements.c.pipeline == switch.pipeline) & (announcements.c.epoch == switch.epoch)


def _noted(connection: Connection, switch: Switch) -> bool:
    found = connection.execute(select(announcements.c.asset_at).where(_row(switch))).one_or_none()
    if found is None:
        raise AirflowFailException(f"the registry has no epoch {switch.epoch} of {switch.pipeline} to announce")
    return found.asset_at is not None


def _emitted(context: Context, asset: Asset) -> set[Any]:
    events = context["inlet_events"][asset].ascending(False).limit(100)
    return {(event.extra or {}).get("epoch") for event in events}
