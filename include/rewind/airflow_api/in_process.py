"""What the page asks of Airflow, as the person who asked: its own REST API, called within the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import Request

from rewind.airflow_api.settling import settled
from rewind.core.errors import RefusedError, RetryError
from rewind.declared import forms
from rewind.declared.forms import rewind_id as id_of

FORWARDED = ("authorization", "cookie")
"""Headers by which Airflow knows the person; it checks their rights once more."""
TIMEOUT_SECONDS = 30.0


class AirflowPort:
    """Airflow's REST API, reached without a network."""

    def __init__(self, app: Callable[[], Any]) -> None:
        """Call the ASGI app that the function returns; it is asked for when it is first needed."""
        self._app = app

    async def trigger(self, request: Request, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a DAG run as the person of a request, and return its id.

        Raises:
            RefusedError: The form of the DAG or Airflow refuses it.
        """
        forms.checked(conf, forms.form_of(dag_id), dag_id)
        body = {"conf": dict(conf), "logical_date": None}
        answer = await self._call(request, "POST", f"/api/v2/dags/{quote(dag_id)}/dagRuns", body)
        return str(answer["dag_run_id"])

    async def answer(self, request: Request, dag_id: str, rewind_id: str, chosen: str, reason: str) -> str:
        """Answer the question that a rewind's run waits with, and return the run's id.

        Raises:
            RefusedError: It asks nothing, or Airflow refuses the answer.
            RetryError: It asked a moment ago: an answer that early would be lost.
        """
        asked = await self._asked(request, dag_id, rewind_id)
        run, task = asked["task_instance"]["dag_run_id"], asked["task_instance"]["task_id"]
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run, safe='')}/taskInstances/{quote(task)}/-1/hitlDetails"
        await self._call(request, "PATCH", path, {"chosen_options": [chosen], "params_input": {"reason": reason}})
        return str(run)

    async def end_steps(self, request: Request, dag_id: str, rewind_id: str) -> list[str]:
        """Mark the tasks that run for a rewind as failed, as the person of a request, and return them.

        Their drivers end with them; what a step has made is taken back by an abort.

        Raises:
            RefusedError: Airflow refuses it.
        """
        runs = (await self._call(request, "GET", f"/api/v2/dags/{quote(dag_id)}/dagRuns?state=running&limit=100"))[
            "dag_runs"
        ]
        ended = []
        for run in (one["dag_run_id"] for one in runs if id_of(dag_id, one["dag_run_id"]) == rewind_id):
            path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run, safe='')}/taskInstances"
            for task in (await self._call(request, "GET", f"{path}?state=running"))["task_instances"]:
                await self._call(request, "PATCH", f"{path}/{quote(task['task_id'])}", {"new_state": "failed"})
                ended.append(str(task["task_id"]))
        return ended

    async def _asked(self, request: Request, dag_id: str, rewind_id: str) -> Mapping[str, Any]:
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/~/hitlDetails?response_received=false&limit=100"
        found = (await self._call(request, "GET", path))["hitl_details"]
        mine = [one for one in found if id_of(dag_id, one["task_instance"]["dag_run_id"]) == rewind_id]
        if not mine:
            raise RefusedError("rewind_id", f"the run of {rewind_id} asks nothing", "Look at its DAG run")
        if not settled(mine[0]["task_instance"]["start_date"], datetime.now(UTC)):
            raise RetryError("it asked a moment ago, and Airflow would lose the answer: answer again in a few seconds")
        return dict(mine[0])

    async def _call(self, request: Request, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        transport = httpx.ASGITransport(app=self._app())
        async with httpx.AsyncClient(
            transport=transport, base_url=str(request.base_url), timeout=TIMEOUT_SECONDS
        ) as client:
            address = f"{request.url.scheme}://{request.url.netloc}{path}"
            answer = await client.request(method, address, headers=headers, json=body)
        if answer.is_error:
            raise RefusedError("airflow", f"answered {answer.status_code}: {_detail(answer)}", "Look at the DAG's page")
        return answer.json()


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (json.JSONDecodeError, KeyError, TypeError):
        return answer.text[:500]
