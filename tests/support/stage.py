"""A whole local stack for a test, with one pipeline driven as a user would: over Airflow's REST API."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from examples.demo.follow import task_of
from rewind.airflow_api.client import AirflowApi
from rewind.core.planning import stages
from rewind.declared import forms
from rewind.local import processes, stack
from rewind.local.stack import Stack
from rewind.registry import generations, rewinds, streams, verdicts
from rewind.registry.rewinds import Rewind, Step
from rewind.runtime.kafka.broker import Broker
from tests.support.workshop import Workshop, wait_for

RUN_SECONDS = 420.0


class Stage:
    """A stack in a home of its own, and the pipeline that plays on it."""

    def __init__(
        self,
        home: Path,
        jars: Path,
        name: str,
        partitions: int,
        *,
        environment: Mapping[str, str] | None = None,
        dags: Path | None = None,
        **declared: Any,
    ) -> None:
        self.home = home
        self._dags = dags
        self.pipelines = home.parent / "pipelines"
        self.pipelines.mkdir(parents=True, exist_ok=True)
        self._environment = {
            "REWIND_JARS": str(jars),
            "REWIND_PIPELINES": str(self.pipelines),
            "PATH": os.environ["PATH"],
            # The newest night would begin with the stack.
            "REWIND_NIGHTLY_SCHEDULE": "never",
            **(environment or {}),
        }
        self.stack: Stack = self.up()
        self.shop = Workshop(self.stack.settings, name, partitions, **declared)
        self.api: AirflowApi = self.stack.api()
        self.rewind_dag = f"rewind_{name}"
        wanted = {f"{kind}_{name}" for kind in ("rewind", "rollback", "deploy", "stream", "abort")} | {
            f"mirror_{self.shop.topic}"
        }
        # Each of their files is parsed anew in its own time.
        wait_for("the pipeline's DAGs", lambda: wanted <= {dag["dag_id"] for dag in self.api.dags()})
        self.api.unpause()

    def up(self) -> Stack:
        return stack.up(self.home, dags=self._dags, environment=self._environment)

    def down(self) -> None:
        stack.down(self.home)
        shutil.rmtree(self.home / "kafka", ignore_errors=True)

    def check_processes(self) -> None:
        """Fail with the end of its log when a process of the stack has ended: nothing more would happen."""
        ended = [processes.last_lines(member.log) for member in stack.status(self.home) if member.pid is None]
        assert not ended, "\n".join(ended)

    def keep_up(self) -> None:
        """Start anew what has ended, as the supervisor of services does wherever Airflow is installed for good."""
        if any(member.pid is None for member in stack.status(self.home)):
            self.stack = self.up()

    def run(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run and wait for its success."""
        run_id = self.start(dag_id, conf)
        self.succeeded(dag_id, run_id)
        return run_id

    def start(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        return str(self.api.trigger(dag_id, conf)["dag_run_id"])

    def succeeded(self, dag_id: str, run_id: str) -> None:
        assert self.ended(dag_id, run_id) == "success", self.failures(dag_id, run_id)

    def ended(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a run and return its state."""
        states: list[str] = []

        def over() -> bool:
            self.check_processes()
            states[:] = [self.api.dag_run(dag_id, run_id)["state"]]
            return states[0] in ("success", "failed")

        wait_for(f"the end of {dag_id}", over, RUN_SECONDS)
        return states[0]

    def failures(self, dag_id: str, run_id: str) -> str:
        """Return the end of the log of each failed task."""
        failed = [t for t in self.api.task_instances(dag_id, run_id) if t["state"] == "failed"]
        logs = [(t["task_id"], self.api.task_log(dag_id, run_id, t["task_id"], t["try_number"])) for t in failed]
        return "\n".join(f"{task}: {log[-3_000:]}" for task, log in logs)

    def raised(self, dag_id: str, run_id: str) -> list[tuple[int, str]]:
        """Return of each failed task how often it was tried, and its last log as JSON, with what was raised."""
        found = []
        for task in (t for t in self.api.task_instances(dag_id, run_id) if t["state"] == "failed"):
            path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task['task_id']}/logs"
            log = self.api.call("GET", f"{path}/{task['try_number']}?full_content=true")
            found.append((int(task["try_number"]), json.dumps(log)))
        return found

    def deploy(self) -> str:
        """Deploy the pipeline, start its mirror, and wait until both have read to the topic's end."""
        self.start(f"mirror_{self.shop.topic}", {})
        self.run(f"deploy_{self.shop.pipeline}", {"from": "earliest"})
        live = self.live()
        self.at_end(live)
        self.at_end(self.shop.mirror)
        return live

    def live(self) -> str:
        with self.shop.registry() as connection:
            found = generations.live(connection, self.shop.pipeline)
        assert found is not None
        return found[0].job_id

    def at_end(self, owner: str) -> None:
        end = self.shop.end()
        there: Callable[[], bool] = lambda: self.shop.position(owner) == end  # noqa: E731
        wait_for(f"{owner} at {end}", there)

    def begin(self, **conf: Any) -> tuple[str, str]:
        """Start a rewind; return the ids of its run and of the rewind."""
        run_id = self.start(self.rewind_dag, {"dry_run": False, "observe": "PT5S", "grace": "PT20S", **conf})
        return run_id, forms.rewind_id(self.rewind_dag, run_id)

    def answer(self, run_id: str, option: str = "Approve", reason: str = "") -> None:
        """Answer the question of a run whenever it is asked, until the registry has the answer.

        An answer that comes before Airflow's executor has reported the question's task parked is lost to it: the
        task runs again and asks again.
        """
        rewind_id = forms.rewind_id(self.rewind_dag, run_id)

        def recorded() -> bool:
            for asked in self.api.hitl_pending(self.rewind_dag, run_id):
                self.api.hitl_answer(self.rewind_dag, run_id, task_of(asked), [option], {"reason": reason})
            with self.shop.registry() as connection:
                given = verdicts.approval(connection, rewind_id)
            if given is None and self.api.dag_run(self.rewind_dag, run_id)["state"] == "failed":
                raise AssertionError(self.failures(self.rewind_dag, run_id))
            return given is not None

        wait_for(f"the answer to {run_id}", recorded, RUN_SECONDS)

    def running(self, run_id: str) -> set[str]:
        """Return the tasks of a rewind's run that run."""
        found = self.api.task_instances(self.rewind_dag, run_id)
        return {task["task_id"] for task in found if task["state"] == "running"}

    def mark(self, run_id: str, task_id: str, state: str, dag_id: str = "") -> None:
        """Set the state of a task of a rewind's run, or of another DAG's, by hand, as the Airflow page does."""
        path = f"/api/v2/dags/{dag_id or self.rewind_dag}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        self.api.call("PATCH", path, {"new_state": state})

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Set the state of a run by hand, as the Airflow page does."""
        self.api.call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}", {"state": state})

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Delete a run, one that runs after it was marked as failed, as Airflow demands.

        A scheduler that looks at the run meanwhile ends with an ObjectDeletedError: wait with `keep_up`.
        """
        self.mark_run(dag_id, run_id, "failed")
        self.api.call("DELETE", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")

    def rewind(self, rewind_id: str) -> tuple[Rewind | None, list[Step]]:
        with self.shop.registry() as connection:
            return rewinds.find(connection, rewind_id), rewinds.steps_of(connection, rewind_id)

    def as_planned(self, run_id: str, rewind_id: str) -> None:
        """See that a run did with each task what its plan says."""
        with self.shop.registry() as connection:
            plan = rewinds.read_plan(connection, rewinds.read(connection, rewind_id).plan_id)
        done = {task["task_id"]: task["state"] for task in self.api.task_instances(self.rewind_dag, run_id)}
        runs = {stages.RUNS: "success", stages.WAITS: "success"}
        assert done == {stage.task: runs.get(stage.does, "skipped") for stage in plan.stages}

    def handed_off(self, rewind_id: str) -> None:
        """Wait until a rewind has its handoff: what is produced from then on, both of its jobs answer."""

        def fixed() -> bool:
            found, _ = self.rewind(rewind_id)
            with self.shop.registry() as connection:
                job = None if found is None else generations.find(connection, found.job_id)
            return job is not None and job.handoff is not None

        wait_for("the handoff", fixed, RUN_SECONDS)

    def starts(self, owner: str) -> int:
        with self.shop.registry() as connection:
            found = streams.read(connection, owner)
        return found.starts if found else 0

    def plan_of(self, run_id: str) -> str:
        """Return the id of the plan that a dry run made."""
        _, steps = self.rewind(forms.rewind_id(self.rewind_dag, run_id))
        return str(steps[-1].evidence["plan_id"])

    def shop_topics(self) -> list[str]:
        return Broker(self.shop.settings).topics()
