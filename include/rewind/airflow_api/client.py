"""A small client of Airflow's REST API: what the stack, the demo and the tests ask of it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib import error, parse, request

from rewind.airflow_api.settling import settled
from rewind.core.errors import RetryError, RewindError

TIMEOUT_SECONDS = 30
AT_ONCE = (0.0, 0.0)
"""Seconds before each further try of somebody who looks again by himself."""
PATIENT = (1.0, 2.0, 4.0, 8.0, 15.0)
"""The same of a command: on SQLite Airflow's processes hold each other up, most of all when they have just started."""
PAGE = 100


class AirflowApiError(RewindError):
    """Airflow refused a request.

    Attributes:
        status: HTTP status of the answer.
        detail: What Airflow says about it.
    """

    def __init__(self, method: str, path: str, status: int, detail: str) -> None:
        super().__init__(f"{method} {path}: Airflow answered {status}: {detail}")
        self.status = status
        self.detail = detail


class AirflowApi:
    """The REST API of one Airflow, as one user.

    Every method raises `AirflowApiError` when Airflow refuses, and `RetryError` when it still does not answer, or fails
    to, after some tries. What was asked for is done once: a run has its id before it is asked for, so that a further
    try which meets a conflict has found the work of an earlier one.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        pauses: Sequence[float] = AT_ONCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pauses, self._sleep = pauses, sleep
        self._url = url.rstrip("/")
        self._credentials = {"username": user, "password": password}
        self._token: str | None = None
        # Straight to loopback: a proxy of the environment cannot know it.
        self._opener = request.build_opener(request.ProxyHandler({}))

    def health(self) -> dict[str, Any]:
        """Return the status and last heartbeat of each component; needs no login."""
        return self._object("GET", "/api/v2/monitor/health", token=None)

    def dags(self) -> list[dict[str, Any]]:
        """Return all DAGs that are not stale."""
        return self._pages("/api/v2/dags", "dags", {"exclude_stale": "true"})

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the DAG files that could not be imported."""
        return self._pages("/api/v2/importErrors", "import_errors", {})

    def unpause(self, pattern: str = "%") -> None:
        """Unpause all DAGs whose id matches the SQL pattern."""
        query = parse.urlencode({"dag_id_pattern": pattern, "update_mask": "is_paused"})
        self.call("PATCH", f"/api/v2/dags?{query}", {"is_paused": False})

    def set_pool(self, name: str, slots: int, description: str) -> None:
        """Create a pool, or give an existing one its slots; deferred tasks hold none."""
        body = {"slots": slots, "description": description, "include_deferred": False}
        try:
            self.call("POST", "/api/v2/pools", {"name": name, **body})
        except AirflowApiError as refused:
            if refused.status != 409:
                raise
            self.call("PATCH", f"/api/v2/pools/{parse.quote(name)}", {"pool": name, **body})

    def trigger(
        self,
        dag_id: str,
        conf: Mapping[str, Any],
        run_id: str | None = None,
        logical_date: datetime | None = None,
    ) -> dict[str, Any]:
        """Start a DAG run and return it.

        Args:
            dag_id: The DAG.
            conf: Parameters of the form; Airflow checks them by their schema.
            run_id: Id of the run; None for a new one.
            logical_date: None for a run without one, as from the form.
        """
        date = logical_date.isoformat() if logical_date else None
        run_id = run_id or f"manual__{datetime.now(UTC).isoformat()}_{secrets.token_hex(4)}"
        body = {"conf": dict(conf), "logical_date": date, "dag_run_id": run_id}
        made = self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        return dict(made) if made else self.dag_run(dag_id, run_id)

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG; `~` means of all."""
        return self._pages(f"/api/v2/dags/{dag_id}/dagRuns", "dag_runs", {})

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return one run."""
        return self._object("GET", _run(dag_id, run_id))

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of one run."""
        return self._pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances", {})

    def end_task(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a task as failed, which ends what it runs."""
        self.call("PATCH", f"{_run(dag_id, run_id)}/taskInstances/{task_id}", {"new_state": "failed"})

    def task_log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
        """Return the log of one attempt of a task, a line an event."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/logs/{attempt}"
        events = self._object("GET", f"{path}?full_content=true")["content"]
        return "\n".join(str(event.get("event", event)) if isinstance(event, dict) else str(event) for event in events)

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str], *, downstream: bool = True) -> None:
        """Clear tasks of a run so that they run again."""
        chosen = {"dag_run_id": run_id, "task_ids": list(task_ids), "include_downstream": downstream}
        options = {"dry_run": False, "only_failed": False, "reset_dag_runs": True}
        # Done twice it would clear what has begun again.
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", chosen | options, pauses=())

    def hitl_pending(self, dag_id: str = "~", run_id: str = "~") -> list[dict[str, Any]]:
        """Return the questions to people that wait for an answer; `~` means of all.

        One that was asked a moment ago is left out: an answer that comes before Airflow's executor has reported the
        question's task parked is lost, and the task is taken for failed.
        """
        found = self._pages(f"{_run(dag_id, run_id)}/hitlDetails", "hitl_details", {"response_received": "false"})
        return [asked for asked in found if settled(asked["task_instance"]["start_date"], datetime.now(UTC))]

    def hitl_answer(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        options: Sequence[str],
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer a question to people.

        Args:
            dag_id: Its DAG.
            run_id: Its run.
            task_id: The waiting task.
            options: The chosen options, such as `["Approve"]`.
            params: Values of the form beside them.
        """
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": list(options), "params_input": dict(params or {})})

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        pauses: Sequence[float] | None = None,
    ) -> Any:
        """Send any request as the user and return the parsed answer.

        Args:
            method: HTTP method.
            path: Path with query.
            body: Sent as JSON.
            pauses: Seconds before each further try; None for the usual ones.

        Returns:
            The answer; None when it is empty, or when only an earlier try got through, which gave none.
        """
        try:
            return self._send(method, path, body, self._token or self._login(), pauses)
        except AirflowApiError as refused:
            if refused.status != HTTPStatus.UNAUTHORIZED:
                raise
            return self._send(method, path, body, self._login(), pauses)

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: None) -> dict[str, Any]:
        answer = self._send(method, path, body, None) if options else self.call(method, path, body)
        return dict(answer)

    def _pages(self, path: str, key: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = parse.urlencode({**query, "limit": PAGE, "offset": len(found)})
            answer = self.call("GET", f"{path}?{page}")
            found += answer[key]
            if not answer[key] or len(found) >= answer["total_entries"]:
                return found

    def _login(self) -> str:
        self._token = str(self._send("POST", "/auth/token", self._credentials, None)["access_token"])
        return self._token

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        token: str | None,
        pauses: Sequence[float] | None = None,
    ) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else json.dumps(body).encode()
        asked = request.Request(self._url + path, data, headers, method=method)
        failed = ""
        for pause in (0.0, *(self._pauses if pauses is None else pauses)):
            if failed:
                self._sleep(pause)
            try:
                with self._opener.open(asked, timeout=TIMEOUT_SECONDS) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except error.HTTPError as refused:
                problem = AirflowApiError(method, path, refused.code, _detail(refused.read()))
                if failed and refused.code == HTTPStatus.CONFLICT:
                    return None
                if refused.code < HTTPStatus.INTERNAL_SERVER_ERROR or pauses == ():
                    raise problem from refused
                failed = str(problem)
            except OSError as unreachable:
                failed = f"Airflow does not answer at {self._url}: {unreachable}"
        raise RetryError(failed)


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{parse.quote(run_id, safe='~')}"


def _detail(text: bytes) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:500]
