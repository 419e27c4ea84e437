"""Cases C06 and C25 on a real scheduler, with submits that are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rewind.registry import leases
from rewind.runtime.drivers.step_lease import ORPHAN, REATTACHED, REPLACED
from tests.support.stub_stage import HEARTBEAT_SECONDS, STEP, StubStage, heartbeats_cut
from tests.support.stub_submit import CLUSTER, HERE
from tests.support.workshop import wait_for

ROWS = HEARTBEAT_SECONDS * 3 + 10
"""One a second: the driver lives on when its task is taken for dead, and until the retry begins."""


def c06_a_retry_replaces_the_driver(stage: StubStage) -> None:
    """A driver here whose task is taken for dead: the retry ends it, and each row is written once."""
    stage.connect(HERE)
    stage.stub.play(STEP, HERE, ROWS)
    rewind_id = stage.submitted("retried", "c06-here")
    wait_for("five rows", lambda: len(stage.stub.rows()) >= 5)
    with heartbeats_cut(_task(stage, rewind_id)):
        wait_for("the second driver", lambda: len(stage.stub.calls("start")) == 2)
    assert [start.get("beside") for start in stage.stub.calls("start")] == [[], []]
    assert stage.ended("retried", "c06-here") == "success"
    assert stage.stub.rows() == list(range(ROWS))
    assert stage.page(rewind_id).step(STEP).driver == REPLACED
    assert stage.task("retried", "c06-here")["try_number"] == 2
    assert stage.held(rewind_id) is None
    stage.close(rewind_id)


def c06_a_retry_follows_the_driver_in_the_cluster(stage: StubStage) -> None:
    """A driver in a cluster whose task is taken for dead: the retry follows it, and the late task lets it be."""
    stage.connect(CLUSTER)
    stage.stub.play(STEP, CLUSTER)
    rewind_id = stage.submitted("retried", "c06-cluster")
    _polled(stage, 2)
    with heartbeats_cut(_task(stage, rewind_id)):
        wait_for("the retry", lambda: stage.page(rewind_id).step(STEP).driver == REATTACHED)
    # Whoever watched the first attempt wakes, is told that it is over, and ends it.
    late = _late_end(stage, "c06-cluster")
    wait_for("the end of the late attempt", late)
    assert stage.stub.calls("kill") == []
    stage.finish(rewind_id)
    assert stage.ended("retried", "c06-cluster") == "success"
    assert len(stage.stub.calls("start")) == 1
    assert stage.held(rewind_id) is None
    stage.close(rewind_id)


def c18_follows_the_driver(stage: StubStage, code: int, state: str) -> str:
    """The end of a driver decides, whatever its submit said; return the state of the task."""
    run_id = f"c18-{code}-{state}"
    stage.connect(CLUSTER)
    good = state == "FINISHED"
    stage.stub.play(STEP, CLUSTER, state="RUNNING" if good else state, code=code)
    rewind_id = stage.submitted("played", run_id)
    if good:
        _polled(stage, 2)
        stage.finish(rewind_id)
    stage.ended("played", run_id)
    told = "exit code 1, but the job came to its end" if good else f"the driver ended {state}"
    assert told in stage.log_of("played", run_id)
    stage.close(rewind_id)
    return str(stage.task("played", run_id)["state"])


def _late_end(stage: StubStage, run_id: str) -> Callable[[], bool]:
    return lambda: "no more this attempt's to end" in stage.api.task_log("retried", run_id, STEP, 1)


def _task(stage: StubStage, rewind_id: str) -> int:
    lease = stage.held(rewind_id)
    assert lease is not None
    assert lease.holder is not None
    return lease.holder.processes[0].pid


def _polled(stage: StubStage, times: int) -> None:
    wait_for(f"poll {times}", lambda: len(stage.stub.calls("status")) >= times)


@dataclass(frozen=True)
class Ending:
    """A way in which a task is ended while its driver runs in a cluster, and how its kill is answered.

    Attributes:
        dag_id: DAG that the step runs in.
        how: What is done to the task at its second poll.
        state: State of the driver after the request to kill.
        code: Exit code of that request.
    """

    dag_id: str
    how: Callable[[StubStage, str], None]
    state: str = "KILLED"
    code: int = 0


def _mark_failed(stage: StubStage, run_id: str) -> None:
    stage.mark(run_id, STEP, "failed", "played")


def _delete(stage: StubStage, run_id: str) -> None:
    stage.delete_run("played", run_id)


def _wait(_stage: StubStage, _run_id: str) -> None:
    """Airflow ends a task whose time is over by itself."""


ENDINGS: Mapping[str, Ending] = {
    "failed": Ending("played", _mark_failed),
    "timeout": Ending("limited", _wait),
    "deleted": Ending("played", _delete),
    "kill-refused": Ending("played", _mark_failed, "RUNNING", 1),
    "relaunching": Ending("played", _mark_failed, "RELAUNCHING"),
}


def c25_confirmed(stage: StubStage, name: str) -> None:
    """The end of the driver is asked for once, and seen: the next start is free."""
    with _ended(stage, name) as rewind_id:
        wait_for("the lease given back", lambda: stage.held(rewind_id) is None)
        _one_kill_then_polls(stage)
        assert stage.page(rewind_id).step(STEP).driver == ""


def c25_orphan(stage: StubStage, name: str) -> None:
    """The end of the driver is not seen: the lease stays, the page says so, and nothing starts before it is seen."""
    run_id = f"c25-{name}"
    with _ended(stage, name) as rewind_id:
        wait_for("the kill", lambda: len(stage.stub.calls("kill")) == 1)
        driver = stage.stub.calls("start")[0]["driver"]
        assert stage.page(rewind_id).step(STEP).driver == f"{ORPHAN} {driver}"
        assert f"{STEP} has an {ORPHAN} {driver}" in stage.page(rewind_id).waits
        _over(stage, rewind_id)
        _one_kill_then_polls(stage)
        stage.api.clear("played", run_id, [STEP])
        assert stage.ended("played", run_id) == "failed"
        assert f"{ORPHAN} {driver} of played/{run_id}/{STEP} is {ENDINGS[name].state}" in stage.log_of("played", run_id)
        assert len(stage.stub.calls("start")) == 1

        stage.stub.state("KILLED")
        stage.api.clear("played", run_id, [STEP])
        wait_for("the next driver", lambda: len(stage.stub.calls("start")) == 2)
        stage.finish(rewind_id)
        assert stage.ended("played", run_id) == "success"
        assert stage.held(rewind_id) is None


@contextmanager
def _ended(stage: StubStage, name: str) -> Iterator[str]:
    """Start a step in the cluster, end it as named, and yield its rewind."""
    ending, run_id = ENDINGS[name], f"c25-{name}"
    stage.connect(CLUSTER)
    stage.stub.play(STEP, CLUSTER)
    stage.stub.kills(ending.state, ending.code)
    rewind_id = stage.submitted(ending.dag_id, run_id)
    _polled(stage, 2)
    assert stage.held(rewind_id) is not None
    ending.how(stage, run_id)
    wait_for("the request to kill", lambda: bool(stage.stub.calls("kill")))
    yield rewind_id
    stage.close(rewind_id)
    stage.keep_up()


def _over(stage: StubStage, rewind_id: str) -> None:
    """Wait for the end of the task's process, which Airflow ends by force after five seconds."""
    task = _task(stage, rewind_id)
    wait_for("the end of the task", lambda: leases.process_of(task) is None)


def _one_kill_then_polls(stage: StubStage) -> None:
    (kill,) = stage.stub.calls("kill")
    assert kill["driver"] == stage.stub.calls("start")[0]["driver"]
    assert any(poll["at"] > kill["at"] for poll in stage.stub.calls("status"))
