"""Which installation a command is about: that of the environment, else the local stack of this checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rewind.airflow_api.client import PATIENT, AirflowApi
from rewind.core.errors import RefusedError
from rewind.core.model import TopicReader
from rewind.core.settings import Settings, from_environment
from rewind.local import stack
from rewind.runtime.kafka import reachability


def environment() -> dict[str, str]:
    """Return the variables of the environment over those of the local stack."""
    given = {key: value for key, value in os.environ.items() if key.startswith("REWIND_") and value}
    return {**stack.environment(stack.home()), **given}


def settings() -> Settings:
    """Return the settings of the installation.

    Raises:
        RefusedError: Neither does the environment name one, nor has the local stack ever been up.
    """
    return from_environment(environment())


def broker(chosen: Settings) -> TopicReader | None:
    """Return the broker, None when nothing listens at its addresses."""
    return reachability.broker(chosen)


def airflow_api(variables: Mapping[str, str] = os.environ) -> AirflowApi:
    """Return a client of the Airflow that `REWIND_AIRFLOW_URL`, `_USER` and `_PASSWORD` name, else of the local stack.

    Raises:
        RefusedError: There is neither.
    """
    url = variables.get("REWIND_AIRFLOW_URL")
    if url:
        user, password = (_needed(variables, f"REWIND_AIRFLOW_{name}") for name in ("USER", "PASSWORD"))
        return AirflowApi(url, user, password, PATIENT)
    running = stack.find(stack.home())
    if running is None:
        raise RefusedError("REWIND_AIRFLOW_URL", "is not set and no local stack runs", "Run `make up`, or export it")
    return running.api(PATIENT)


def _needed(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name)
    if not value:
        raise RefusedError(name, "is not set", "REWIND_AIRFLOW_URL needs it beside")
    return value
