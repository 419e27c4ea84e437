"""A small client of Airflow's REST API: what the stack, the demo and the tests ask of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib import error, parse, request

from rewind.core.answers import settled
from rewind.core.errors import RetryError, RewindError

TIMEOUT_SECONDS = 30
READ_TRIES = 3
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

    Every method raises `AirflowApiError` when Airflow refuses and `RetryError` when it does not answer; one that only
    reads also when Airflow fails to: on SQLite its processes hold each other up now and then.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
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
            run_id: Id of the run; None lets Airflow make one.
            logical_date: None for a run without one, as from the form.
        """
        date = logical_date.isoformat() if logical_date else None
        body = {"conf": dict(conf), "logical_date": date} | ({"dag_run_id": run_id} if run_id else {})
        return self._object("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)

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
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", chosen | options)

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
    ) -> dict[str, Any]:
        """Answer a question to people.

        Args:
            dag_id: Its DAG.
            run_id: Its run.
            task_id: The waiting task.
            options: The chosen options, such as `["Approve"]`.
            params: Values of the form beside them.
        """
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/-1/hitlDetails"
        return self._object("PATCH", path, {"chosen_options": list(options), "params_input": dict(params or {})})

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send any request as the user and return the parsed answer, None when it is empty."""
        try:
            return self._send(method, path, body, self._token or self._login())
        except AirflowApiError as refused:
            if refused.status != 401:
                raise
            return self._send(method, path, body, self._login())

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

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, token: str | None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else json.dumps(body).encode()
        asked = request.Request(self._url + path, data, headers, method=method)
        # Reading again is harmless, and a busy machine answers late; a POST may have been carried out.
        for left in reversed(range(READ_TRIES if method == "GET" else 1)):
            try:
                with self._opener.open(asked, timeout=TIMEOUT_SECONDS) as answer:
                    text = answer.read()
                break
            except error.HTTPError as refused:
                problem = AirflowApiError(method, path, refused.code, _detail(refused.read()))
                if method == "GET" and refused.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise RetryError(str(problem)) from refused
                raise problem from refused
            except OSError as unreachable:
                if not left:
                    raise RetryError(f"Airflow does not answer at {self._url}: {unreachable}") from unreachable
        return json.loads(text) if text else None


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{parse.quote(run_id, safe='~')}"


def _detail(text: bytes) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:500]
