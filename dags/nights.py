"""Nightly replays.

`nightly_replay_<pipeline>` asks each night whether the live job would still give the answers that it gave. A night
takes up the source where the one before it ended: its records are replayed from the mirror through the frozen code of
the live job into tables of their own, compared with what live wrote, and reported; then what was written is deleted.
A difference is a drift: the run is red, whoever is to be told is told, and the evidence names the columns. Answers that
drift depend on more than the records: a clock, an order that is not fixed, or a table that has changed.

A night is an interval in UTC between two ticks of the schedule, its date a label. One that had no run is listed as not
replayed, never as consistent. To replay it, use Airflow's backfill or clear its run. `partitions` and `share` replay a
sample; each report says which.

The schedule is `REWIND_NIGHTLY_SCHEDULE`, a cron expression in the zone `REWIND_NIGHTLY_ZONE`, or `never`; 02:30 UTC by
default.
"""

from __future__ import annotations

from airflow.sdk import DAG
from rewind_airflow import declared, form, nights, notify, run, schedules

from rewind.core.pipeline import Pipeline
from rewind.declared.forms import NIGHTLY

WHAT = "What to replay"


def nightly_dag(pipeline: Pipeline) -> DAG:
    params = {
        "partitions": form.param(
            {**NIGHTLY["partitions"], "default": list(pipeline.nightly_partitions) or None},
            WHAT,
            "Partitions",
            "Source partitions to replay, one a line; empty for all.",
        ),
        "share": form.param(
            {**NIGHTLY["share"], "default": pipeline.nightly_share},
            WHAT,
            "Share of the keys",
            "Share of the keys to replay: of each key all records or none. One with state is replayed completely.",
        ),
    }
    with DAG(
        dag_id=f"nightly_replay_{pipeline.name}",
        description=f"Does the live job of {pipeline.name} still give the same answers?",
        doc_md=__doc__,
        schedule=nights.schedule(),
        start_date=nights.first(schedules.begin()),
        # Nights that were missed are listed; to replay them is a person's decision.
        catchup=False,
        max_active_runs=1,
        params=params,
        default_args=run.RETRIES | notify.TASKS,
        tags=["nightly", pipeline.name],
    ) as dag:
        nights.NightSubmit(task_id="replay", pipeline=pipeline.name)
    return dag


for declared_pipeline in declared.good():
    nightly_dag(declared_pipeline)
