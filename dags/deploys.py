"""Deploy a pipeline.

Makes the first generation of a pipeline and starts it: from the earliest or latest record, or from the positions of
an existing consumer group or Spark checkpoint. Refused when the pipeline has a live job: use its rewind DAG then.
"""

from __future__ import annotations

from airflow.sdk import DAG
from rewind_airflow import declared, form, notify, run
from rewind_airflow.submits import DeploySubmit
from rewind_airflow.triggers import StartStream

from rewind.declared.forms import DEPLOY

PARAMS = {
    "from": form.param(
        DEPLOY["from"],
        "Where to start",
        "From",
        "earliest; latest; group:NAME, from the positions of a consumer group; checkpoint:PATH, from those of a query.",
    )
}


def deploy_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=f"deploy_{pipeline}",
        description=f"Make and start the first generation of {pipeline}",
        doc_md=__doc__,
        schedule=None,
        params=PARAMS,
        default_args=run.RETRIES | notify.TASKS,
        tags=["rewind", pipeline],
    ) as dag:
        deploy = DeploySubmit(task_id="deploy", job="deploy", pipeline=pipeline)
        deploy >> StartStream(task_id="start_stream", pipeline=pipeline)
    return dag


for declared_pipeline in declared.good():
    deploy_dag(declared_pipeline.name)
