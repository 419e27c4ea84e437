"""Prove mirrors.

Looks whether each mirror holds every record of its topic once, and what Kafka still holds byte for byte. A run fails
when a mirror has lost records or holds other ones; which, stands in its log, in the evidence and in `rewind status`.
What was proven before is not read again unless a commit has taken files away since. `topic` names one mirror; without
it all are proven.

The schedule is `REWIND_PROOF_SCHEDULE`, a cron expression in UTC, nightly by default.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG
from rewind_airflow import form, notify, run, schedules
from rewind_airflow.submits import ProveSubmit

from rewind.declared.forms import PROVE

with DAG(
    dag_id="prove_mirrors",
    description="Look for records that a mirror has lost",
    doc_md=__doc__,
    schedule=os.environ.get("REWIND_PROOF_SCHEDULE") or "30 2 * * *",
    start_date=schedules.begin(),
    catchup=False,
    # Here queueing is right: the second has little left to read.
    max_active_runs=1,
    params={"topic": form.param(PROVE["topic"], "What to verify", "Topic", "A source topic; leave it out for all.")},
    default_args=run.RETRIES | notify.TASKS,
    tags=["mirror"],
):
    ProveSubmit(task_id="prove", job="prove")
