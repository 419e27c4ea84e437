"""Check the pipelines.

Lists the declared pipelines. While a pipeline's folder is broken, this file alone cannot be imported: the error on
the page names the folder and the cure, and the DAGs of all other pipelines stay.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG, task
from rewind_airflow import declared, notify

if problems := declared.broken():
    raise ImportError("\n".join(f"pipelines/{broken.name}: {broken.problem}" for broken in problems))

# A notifier that cannot be made would be missed only when it is needed.
notify.chosen(os.environ)

with DAG(dag_id="check_pipelines", description="List the declared pipelines", doc_md=__doc__, schedule=None):
    task(task_id="names")(declared.names)()
