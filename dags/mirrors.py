"""Mirrors.

`mirror_<topic>` keeps the Delta copy of a source topic: it wishes that the mirror runs and supervises its driver, as
`stream_<pipeline>` does for a job. A second run beside the first does no harm: both attach to the same driver.
"""

from __future__ import annotations

from airflow.sdk import DAG, task
from rewind_airflow import declared, notify, run, supervision
from rewind_airflow.waits import Supervise

from rewind.core import names


def mirror_dag(topic: str) -> DAG:
    with DAG(
        dag_id=supervision.mirror_dag(topic),
        description=f"Keep the mirror of {topic}",
        doc_md=__doc__,
        default_args=notify.TASKS,
        schedule=None,
        tags=["mirror"],
    ) as dag:
        wish = task(task_id="wish", **run.RETRIES)(supervision.wish_mirror)(topic)
        wish >> Supervise(task_id="supervise", owner=names.mirror_owner(topic))
    return dag


for source_topic in declared.source_topics():
    mirror_dag(source_topic)
