"""Streams.

`stream_<pipeline>` supervises the jobs of a pipeline: one run a job, named `<job-id>.<n>`. It starts the driver when
none lives, attaches when one does, logs its position and lag, backs off after failures, and fails when the job is
quarantined. The driver is no child of Airflow: ending the run does not end it. To stop a job, drain it by command;
then the run ends green.

`watch_streams` looks every minute for a stream that should run and has no supervisor, and starts one.
"""

from __future__ import annotations

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, task
from rewind_airflow import declared, form, notify, run, schedules, supervision
from rewind_airflow.waits import Supervise

from rewind.declared.forms import STREAM

OWNER = form.param(
    STREAM["owner"],
    "What to supervise",
    "Job",
    "Job id to supervise, as visits_converter-g1. Leave it out for the live job.",
)


def stream_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=supervision.stream_dag(pipeline),
        description=f"Supervise the streaming jobs of {pipeline}",
        doc_md=__doc__,
        default_args=notify.TASKS,
        schedule=None,
        params={"owner": OWNER},
        # Live, standbys and candidates run for months side by side.
        max_active_runs=64,
        tags=["stream", pipeline],
    ) as dag:
        Supervise(task_id="supervise", pipeline=pipeline)
    return dag


def watch_dag() -> DAG:
    with DAG(
        dag_id="watch_streams",
        description="Start a supervisor for each stream that should run and has none",
        doc_md=__doc__,
        # Right after a start Airflow and the registry are busy: a run is red only if a moment's wait does not help.
        default_args=run.RETRIES | notify.TASKS,
        schedule="* * * * *",
        start_date=schedules.begin(),
        catchup=False,
        max_active_runs=1,
        tags=["stream"],
    ) as dag:
        missing = task(task_id="find")(supervision.unsupervised)()
        TriggerDagRunOperator.partial(
            task_id="start", logical_date=None, skip_when_already_exists=True, openlineage_inject_parent_info=False
        ).expand_kwargs(missing)
    return dag


watch_dag()
for declared_pipeline in declared.good():
    stream_dag(declared_pipeline.name)
