"""Roll back a switch.

Makes the job that stands by live again: one compare-and-set of the pointer, within a minute, without a gap for
readers. The job that is live now goes on as standby, so that the way forward stays open until its own grace is over.

1. Trigger it as it is: a **dry run**. The log tells which job would be live and how far it is behind.
2. Trigger it again with **Dry run** off. It waits until the standby has passed all that live has answered, then
   moves the pointer and announces it.

A rewind that is still observed ends as *rolled_back*, and its run is red. It is refused when nothing stands by any
more; then rewind the pipeline with the older code instead.
"""

from __future__ import annotations

from airflow.sdk import DAG
from rewind_airflow import declared, form, notify, run
from rewind_airflow.announce import AnnounceRollback
from rewind_airflow.submits import RollbackSubmit


def rollback_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=f"rollback_{pipeline}",
        description=f"Make the standby of {pipeline} live again",
        doc_md=__doc__,
        schedule=None,
        params=form.rollback_params(),
        default_args=run.RETRIES | notify.TASKS,
        tags=["rewind", pipeline],
    ) as dag:
        RollbackSubmit(task_id="rollback", job="rollback", pipeline=pipeline) >> AnnounceRollback(
            task_id="announce", pipeline=pipeline
        )
    form.keep_once(dag)
    return dag


for declared_pipeline in declared.good():
    rollback_dag(declared_pipeline.name)
