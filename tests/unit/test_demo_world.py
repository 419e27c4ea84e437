"""How the demo starts and follows DAG runs."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from examples.demo.errors import DemoError
from examples.demo.world import World, names_of
from rewind.airflow_api.client import AirflowApiError
from rewind.local.voice import Voice
from rewind.local.waiting import StuckError, Waiting


class FakeApi:
    """An Airflow whose DAG appears after some looks, and whose answers are given in advance."""

    def __init__(self, looks=1, triggers=(None,), states=("success",), tasks=()):
        self.looks, self.triggers, self.states, self.tasks = looks, list(triggers), list(states), list(tasks)
        self.run_ids = []

    def dags(self):
        self.looks -= 1
        return [{"dag_id": "deploy_a"}] if self.looks <= 0 else []

    def unpause(self, dag_id):
        assert dag_id == "deploy_a"

    def trigger(self, dag_id, conf, run_id):
        self.run_ids.append(run_id)
        refused = self.triggers.pop(0)
        if refused is not None:
            raise AirflowApiError("POST", "/runs", refused, "no")

    def dag_run(self, dag_id, run_id):
        return {"state": self.states.pop(0) if len(self.states) > 1 else self.states[0]}

    def task_instances(self, dag_id, run_id):
        return self.tasks

    def task_log(self, dag_id, run_id, task_id, attempt):
        return f"begin\nError: {task_id} has no luck\nend"


@pytest.fixture
def make(tmp_path):
    def world(api):
        home = SimpleNamespace(home=tmp_path)
        stack = SimpleNamespace(airflow=SimpleNamespace(settings=home), airflow_url="http://a", settings=home)
        made = World(stack, api, names_of(1), tmp_path, Voice(Console(file=io.StringIO())))
        now = [0.0]
        made.__dict__["waits"] = Waiting(
            made.voice, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds)
        )
        made.__dict__["clock"] = now
        return made

    return world


def task(task_id, state, attempt=1):
    return {"task_id": task_id, "state": state, "try_number": attempt}


def test_a_run_is_started_once_its_dag_is_parsed(make):
    api = FakeApi(looks=5)
    run_id = make(api).start_dag("deploy_a", {"from": "earliest"})
    assert api.run_ids == [run_id]


@pytest.mark.parametrize("answers", [(500, 409), (503, 500, None)])
def test_a_run_that_was_answered_with_an_error_is_asked_for_again_under_its_id(make, answers):
    api = FakeApi(triggers=answers)
    run_id = make(api).start_dag("deploy_a", {})
    assert api.run_ids == [run_id] * len(answers)


def test_a_run_that_is_refused_is_not(make):
    with pytest.raises(AirflowApiError, match="answered 422"):
        make(FakeApi(triggers=(422,))).start_dag("deploy_a", {})


def test_a_run_that_failed_is_told_with_its_last_errors_and_where_its_logs_are(make):
    api = FakeApi(states=("running", "failed"), tasks=[task("deploy", "failed"), task("start_stream", None)])
    with pytest.raises(DemoError) as raised:
        make(api).await_run("deploy_a", "demo__1")
    assert str(raised.value) == (
        "deploy_a failed: deploy: Error: deploy has no luck. Its tasks and logs: http://a/dags/deploy_a/runs/demo__1"
    )


def test_a_run_moves_by_its_tasks(make):
    api = FakeApi(states=("running",), tasks=[task("deploy", "running"), task("start_stream", None)])
    world = make(api)
    assert world.task_states("deploy_a", "r") == [("deploy", "running", 1)]
    with pytest.raises(StuckError, match=r"Waited for deploy_a to end: nothing has moved for 90 s \(deploy running\)"):
        world.await_run("deploy_a", "r")
    assert world.__dict__["clock"] == [90.0]
