"""Wait for the plan that a dry run makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console

from rewind.core.errors import RefusedError, RewindError
from rewind.core.planning.plan import Plan
from rewind.declared import forms
from rewind.registry import rewinds
from rewind.registry.snapshot import snapshot

LOOK_SECONDS = 2.0
STEP = "plan"


class Runs(Protocol):
    """What waiting needs of Airflow."""

    def dag_run(self, dag_id: str, run_id: str) -> Mapping[str, Any]:
        """Return one run, with its `state`."""


def awaited(airflow: Runs, registry_url: str, dag_id: str, run_id: str) -> Plan:
    """Return the plan of a dry run, once its run has ended.

    Raises:
        RefusedError: The request was refused; nothing has been changed.
        RewindError: The run failed before it planned.
    """
    with Console(stderr=True).status(f"{dag_id}: run {run_id} plans"):
        while (state := airflow.dag_run(dag_id, run_id)["state"]) not in ("success", "failed"):
            time.sleep(LOOK_SECONDS)
    with snapshot(registry_url) as connection:
        steps = rewinds.steps_of(connection, forms.rewind_id(dag_id, run_id))
        evidence = next((step.evidence or {} for step in reversed(steps) if step.step == STEP), {})
        if "plan_id" in evidence:
            return rewinds.read_plan(connection, evidence["plan_id"])
    look = f"Look at the log of its task `{STEP}`"
    if "error" in evidence:
        raise RefusedError(STEP, str(evidence["error"]), look)
    raise RewindError(f"{dag_id}: run {run_id} ended as {state} without a plan. {look}")
