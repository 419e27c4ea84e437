"""What a task learns from the run it belongs to."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, cast

import structlog
from airflow.sdk import Context

from rewind.core.settings import Settings, from_environment
from rewind.declared import forms
from rewind.registry import rewinds
from rewind.registry.database import reading
from rewind_airflow.reactions import reactions

RETRIES: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=10)}
"""For tasks whose failure a moment's wait may heal; a refusal is never retried."""


def settings() -> Settings:
    """Return the installation's settings, from the environment that Airflow's tasks inherit."""
    return from_environment(os.environ)


def rewind_id(context: Context) -> str:
    """Return the id of the rewind that this run carries out, and put it on every log line of the task."""
    ti = context["ti"]
    found = forms.rewind_id(ti.dag_id, ti.run_id)
    structlog.contextvars.bind_contextvars(rewind_id=found)
    return found


def person(context: Context) -> str:
    """Return who asked for this run, by the name that Airflow has of them; empty when no person did."""
    return str(getattr(context["dag_run"], "triggering_user_name", None) or "")


def given(context: Context) -> dict[str, Any]:
    """Return the parameters of a run: its conf over what its DAG declares.

    Airflow leaves a conf out of `params` when `dag_run_conf_overrides_params` is off; what somebody asked for must
    not be taken for a default.
    """
    return {**context["params"], **(context["dag_run"].conf or {})}


def asked(context: Context, form: forms.Form) -> dict[str, Any]:
    """Return the parameters of a run held against the form of its DAG: what its first task does before all else.

    Raises:
        RefusedError: One is unknown, lacking, empty, of another type, or has a bad value.
    """
    return forms.checked(given(context), form, context["ti"].dag_id)


def nothing_asked(**context: Any) -> None:
    """Refuse a run with parameters of a DAG that takes none.

    Raises:
        AirflowFailException: There are some.
    """
    with reactions():
        asked(cast("Context", context), forms.NOTHING)


def goes_on(**context: Any) -> bool:
    """Return whether a plan is to be carried out; a dry run ends after it.

    Raises:
        AirflowFailException: The plan opened no rewind, whatever its task says.
    """
    if given(cast("Context", context))["dry_run"]:
        return False
    with reactions(), reading(settings().registry_url) as connection:
        rewinds.read_active(connection, rewind_id(cast("Context", context)))
    return True
