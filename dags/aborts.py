"""Abort a rewind.

Stops the candidate of a rewind, takes back what the rewind made, and ends it as aborted. Live is untouched.

A rewind that fails or is rejected triggers this by itself. By hand: give the rewind's id (`rw-…`, in the log of every
task of its run and in `python -m rewind status`). It is refused once the pointer has moved; then roll back instead. It
waits while a task drives a step; the page and the command line end that task by themselves.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
from rewind_airflow import declared, notify, run
from rewind_airflow.submits import AbortSubmit

PARAMS = {
    "rewind_id": Param(
        None,
        "The rewind to abort.",
        type="string",
        pattern="^rw-[0-9a-f]{10}$",
        title="Rewind",
        section="What to abort",
    ),
    "reason": Param("", "Why, for the history.", type=["string", "null"], maxLength=2_000, title="Reason"),
}


def abort_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=f"abort_{pipeline}",
        description=f"Take back a rewind of {pipeline} that has not switched",
        doc_md=__doc__,
        schedule=None,
        params=PARAMS,
        default_args=run.RETRIES | notify.TASKS,
        tags=["rewind", pipeline],
    ) as dag:
        # A step that is driven still is being ended: that takes longer than a moment.
        AbortSubmit(task_id="abort", job="abort", pipeline=pipeline, retries=12)
    return dag


for declared_pipeline in declared.good():
    abort_dag(declared_pipeline.name)
