"""Move consumer groups to another output.

A group that reads a pipeline's output has its position in the output of one job. After a switch it goes on in the
output of another: this DAG finds for each group where, by the source coordinates in the headers, so that it misses no
source record and repeats as few as possible.

1. Stop the consumers of the groups: one with members is refused.
2. Trigger it as it is, with the groups: a **dry run**. The log tells where each group would go on, how many records it
   would read again, and which records only the new output has below its position.
3. Trigger it again with **Dry run** off, and start the consumers on the new output.

A rewind and a rollback do the same for the groups in their own forms, between the switch and its announcement. This is
for groups that were left out, or refused because they had members, and for a look before a switch.
"""

from __future__ import annotations

from airflow.sdk import DAG
from rewind_airflow import declared, form, notify, run
from rewind_airflow.submits import ConsumersSubmit


def consumers_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=f"consumers_{pipeline}",
        description=f"Move consumer groups between outputs of {pipeline}",
        doc_md=__doc__,
        schedule=None,
        params=form.consumers_params(),
        default_args=run.RETRIES | notify.TASKS,
        tags=["rewind", pipeline],
    ) as dag:
        ConsumersSubmit(task_id="consumers", job="consumers", pipeline=pipeline)
    form.keep_once(dag)
    return dag


for declared_pipeline in declared.good():
    consumers_dag(declared_pipeline.name)
