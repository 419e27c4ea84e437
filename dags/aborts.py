"""Abort a rewind.

Stops the candidate of a rewind, takes back what the rewind made, and ends it as aborted. Live is untouched.

A rewind that fails or is rejected triggers this by itself. By hand: give the rewind's id (`rw-…`, in the log of every
task of its run and in `python -m rewind status`). It is refused once the pointer has moved; then roll back instead. It
waits while a task drives a step; the page and the command line end that task by themselves.
"""

from __future__ import annotations

from airflow.sdk import DAG
from rewind_airflow import declared, form, notify, run
from rewind_airflow.submits import AbortSubmit

from rewind.declared.forms import ABORT

WHAT = "What to abort"
PARAMS = {
    "rewind_id": form.param(ABORT["rewind_id"], WHAT, "Rewind", "The rewind to abort."),
    "reason": form.param(ABORT["reason"], WHAT, "Reason", "Why, for the history."),
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
