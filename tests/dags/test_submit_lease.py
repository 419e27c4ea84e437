"""The lease of a submit: what ends a task ends its driver, or lets nothing start beside it."""

from __future__ import annotations

import json

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from rewind_airflow import hook as hooks
from rewind_airflow.hook import TrackedHook
from rewind_airflow.submits import AbortSubmit, StepSubmit

from rewind.core.errors import RetryError
from rewind.registry import leases, rewinds
from rewind.registry.database import writing
from rewind.runtime.drivers import step_lease
from tests.support import stub_submit
from tests.support.stub_submit import CLUSTER, HERE
from tests.support.workshop import wait_for

# A lone master would be asked over HTTP.
STANDALONE = {"conn_type": "spark", "host": "spark://a:7077,b:7077", "extra": {"deploy-mode": "cluster"}}
DRIVER = "driver-20250904070000-0000"


class TimeIsOver(BaseException):
    """As Airflow's, it passes whoever catches exceptions."""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A played spark-submit whose drivers run in a cluster."""
    made = stub_submit.install(tmp_path / "stub")
    for name, value in stub_submit.on_path(made).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(STANDALONE))
    monkeypatch.setattr(hooks, "CONFIRM_SECONDS", 1.0)
    made.play("backfill", CLUSTER)
    return made


@pytest.fixture
def cut_off(opened, context, stub, monkeypatch):
    """Start a backfill in the cluster and cut its task off at its first poll; return the task."""
    opened()

    def over(_hook):
        raise TimeIsOver

    with monkeypatch.context() as patch:
        patch.setattr(TrackedHook, "_start_driver_status_tracking", over)
        task = StepSubmit(task_id="backfill")
        with pytest.raises(TimeIsOver):
            task.execute(context)
    return task


def held(installation, rewind_id):
    with writing(installation.registry_url) as connection:
        found = leases.read(connection, f"{rewind_id}.backfill")
    return found.holder


def finish(installation, rewind_id, stub):
    """Mark the step as done when the cluster is next asked."""
    with writing(installation.registry_url) as connection:
        attempt = rewinds.begin_step(connection, rewind_id, "backfill")
        rewinds.end_step(connection, rewind_id, "backfill", attempt, "done", {})
    stub.state("FINISHED")


def test_a_driver_is_in_the_registry_before_its_end_is_waited_for(installation, cut_off, rewind_id):
    found = held(installation, rewind_id)
    assert (found.driver, found.run, found.orphan) == (DRIVER, "rewind_visits/r1/backfill", False)


def test_a_driver_whose_end_is_seen_frees_its_lease(installation, cut_off, rewind_id, stub):
    cut_off.on_kill()
    cut_off.on_kill()
    assert [kill["driver"] for kill in stub.calls("kill")] == [DRIVER]
    assert held(installation, rewind_id) is None


@pytest.mark.parametrize(("state", "code"), [("RUNNING", 1), ("RELAUNCHING", 0), ("UNKNOWN", 0)])
def test_an_orphan_lets_neither_the_step_nor_the_abort_start(
    installation, cut_off, context, rewind_id, stub, state, code
):
    stub.kills(state, code)
    cut_off.on_kill()
    assert held(installation, rewind_id).orphan
    with pytest.raises(AirflowFailException, match=f"orphan driver {DRIVER} of .* is {state}"):
        StepSubmit(task_id="backfill").execute(context)
    aborted = {**context, "params": {"rewind_id": rewind_id}}
    with pytest.raises(AirflowFailException, match=f"orphan driver {DRIVER}"):
        AbortSubmit(task_id="abort", job="abort", pipeline="visits").execute(aborted)
    assert len(stub.calls("start")) == 1


def test_the_next_attempt_follows_the_driver_of_the_last(installation, cut_off, context, rewind_id, stub, monkeypatch):
    real = TrackedHook._start_driver_status_tracking

    def meanwhile(hook):
        finish(installation, rewind_id, stub)
        real(hook)

    monkeypatch.setattr(TrackedHook, "_start_driver_status_tracking", meanwhile)
    StepSubmit(task_id="backfill").execute(context)
    assert len(stub.calls("start")) == 1
    assert held(installation, rewind_id) is None
    # Whoever still watches for the first attempt ends nothing.
    cut_off.on_kill()
    assert stub.calls("kill") == []


def test_a_driver_that_ended_meanwhile_is_followed_by_a_new_one(context, cut_off, stub, monkeypatch):
    stub.state("FAILED")

    def failed(hook):
        hook._driver_status = "FAILED"

    monkeypatch.setattr(TrackedHook, "_start_driver_status_tracking", failed)
    with pytest.raises(AirflowException, match="the driver ended FAILED"):
        StepSubmit(task_id="backfill").execute(context)
    assert len(stub.calls("start")) == 2


def test_an_abort_waits_for_a_step_that_runs_here(installation, opened, context, rewind_id, stub, monkeypatch):
    opened()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type":"spark","host":"local[2]"}')
    stub.play("backfill", HERE, rows=60)
    aborted = {**context, "params": {"rewind_id": rewind_id}}

    def interrupted(hook):
        with pytest.raises(AirflowException, match=r"backfill is driven by rewind_visits/r1/backfill: mark that task"):
            AbortSubmit(task_id="abort", job="abort", pipeline="visits").execute(aborted)
        raise TimeIsOver

    monkeypatch.setattr(TrackedHook, "_process_spark_submit_log", lambda hook, lines: interrupted(hook))
    task = StepSubmit(task_id="backfill")
    with pytest.raises(TimeIsOver):
        task.execute(context)
    assert held(installation, rewind_id) is not None
    task.on_kill()
    assert held(installation, rewind_id) is None
    assert stub.calls("kill") == []


def test_a_driver_that_its_dead_submit_left_ends_with_the_task(
    installation, opened, context, rewind_id, stub, monkeypatch
):
    opened()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type":"spark","host":"local[2]"}')
    stub.play("backfill", HERE, rows=60)

    def orphaned(hook, lines):
        wait_for("the driver", lambda: bool(stub.calls("start")))
        hook._submit_sp.kill()
        hook._submit_sp.wait()
        raise TimeIsOver

    monkeypatch.setattr(TrackedHook, "_process_spark_submit_log", orphaned)
    task = StepSubmit(task_id="backfill")
    with pytest.raises(TimeIsOver):
        task.execute(context)
    (start,) = stub.calls("start")
    assert leases.process_of(start["driver"]) is not None
    task.on_kill()
    assert leases.process_of(start["driver"]) is None
    assert held(installation, rewind_id) is None


def test_without_the_registry_only_the_attempts_own_driver_is_ended(
    installation, cut_off, rewind_id, stub, monkeypatch
):
    def away(*_):
        raise RetryError("the registry is away")

    monkeypatch.setattr(step_lease, "orphan", away)
    monkeypatch.setattr(step_lease, "kill", lambda _: pytest.fail("ended what may be a newer attempt's"))
    cut_off.on_kill()
    assert [kill["driver"] for kill in stub.calls("kill")] == [DRIVER]
    assert held(installation, rewind_id) is not None
