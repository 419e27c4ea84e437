"""Collect garbage.

Deletes exactly what the manifests of aborted generations, of repairs and of standbys past their grace period list, by
name *and* id. Whatever the tasks of a rewind say, it acts on the registry alone. With `dry_run` it only lists.

The schedule is `REWIND_GARBAGE_SCHEDULE`, a cron expression, hourly by default.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG
from rewind_airflow import form, notify, run, schedules
from rewind_airflow.submits import CollectSubmit

from rewind.declared.forms import COLLECT

with DAG(
    dag_id="collect_garbage",
    description="Delete what retired generations own",
    doc_md=__doc__,
    schedule=os.environ.get("REWIND_GARBAGE_SCHEDULE") or "0 * * * *",
    start_date=schedules.begin(),
    catchup=False,
    # Here queueing is right: two collections have nothing to do at once.
    max_active_runs=1,
    params={"dry_run": form.param(COLLECT["dry_run"], form.RUN, "Dry run", "Only list what would be deleted.")},
    default_args=run.RETRIES | notify.TASKS,
    tags=["rewind"],
):
    CollectSubmit(task_id="collect_garbage", job="collect_garbage")
