"""The asset event that tells downstream DAGs of a switch: one an epoch."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import Connection, select, update

from rewind.control import rewinds
from rewind.control.database import now, transaction
from rewind.control.schema import announcements
from rewind.core.plan import Plan
from rewind_airflow import run
from rewind_airflow.reactions import reactions


def live_asset(pipeline: str) -> Asset:
    """Return the asset that stands for the output of whichever generation of a pipeline is live."""
    return Asset(name=f"{pipeline}_live", uri=f"rewind://{pipeline}/live", group="rewind")


class Announce(BaseOperator):
    """Emits the event of a switch, unless it was: each success of a task with outlets emits one anew."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Announce a switch of a pipeline."""
        # The asset is an inlet too, so that the task can see which events there have been.
        self.asset = live_asset(pipeline)
        super().__init__(inlets=[self.asset], outlets=[self.asset], **kwargs)

    def execute(self, context: Context) -> None:
        """Emit the event of the plan's epoch, or skip."""
        rewind_id = run.rewind_id(context)
        with reactions(), transaction(run.settings().registry_url) as connection:
            plan = rewinds.read_plan(connection, rewinds.read(connection, rewind_id).plan_id)
            noted = _noted(connection, plan)
        epoch = plan.epoch + 1
        # The note alone proves nothing: a task that dies after it has emitted nothing.
        if noted and epoch in _emitted(context, self.asset):
            raise AirflowSkipException(f"epoch {epoch} of {plan.request.pipeline} was announced")
        extra = {"job_id": plan.job_id, "epoch": epoch, "output_topic": plan.output_topic}
        context["outlet_events"][self.asset].extra.update(extra)
        with reactions(), transaction(run.settings().registry_url) as connection:
            connection.execute(update(announcements).where(_row(plan)).values(asset_at=now()))
        self.log.info("announced %s", extra)


def _row(plan: Plan) -> Any:
    return (announcements.c.pipeline == plan.request.pipeline) & (announcements.c.epoch == plan.epoch + 1)


def _noted(connection: Connection, plan: Plan) -> bool:
    found = connection.execute(select(announcements.c.asset_at).where(_row(plan))).one_or_none()
    if found is None:
        raise AirflowFailException(f"the registry has no epoch {plan.epoch + 1} of {plan.request.pipeline} to announce")
    return found.asset_at is not None


def _emitted(context: Context, asset: Asset) -> set[Any]:
    events = context["inlet_events"][asset].ascending(False).limit(100)
    return {(event.extra or {}).get("epoch") for event in events}
