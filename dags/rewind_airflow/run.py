"""What a task learns from the run it belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from airflow.sdk import Context

from rewind.control import requests, rewinds
from rewind.control.database import transaction
from rewind.core.settings import Settings, from_environment
from rewind_airflow.reactions import reactions

RETRIES: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=10)}
"""For tasks whose failure a moment's wait may heal; a refusal is never retried."""


def settings() -> Settings:
    """Return the installation's settings, from the environment that Airflow's tasks inherit."""
    return from_environment(os.environ)


def rewind_id(context: Context) -> str:
    """Return the id of the rewind that this run carries out, and put it on every log line of the task."""
    ti = context["ti"]
    found = requests.rewind_id(ti.dag_id, ti.run_id)
    structlog.contextvars.bind_contextvars(rewind_id=found)
    return found


def goes_on(params: Mapping[str, Any], **context: Any) -> bool:
    """Return whether a plan is to be carried out; a dry run ends after it.

    Raises:
        AirflowFailException: The plan opened no rewind, whatever its task says.
    """
    if params["dry_run"]:
        return False
    with reactions(), transaction(settings().registry_url) as connection:
        rewinds.read_active(connection, rewind_id(context))
    return True
