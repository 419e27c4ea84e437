"""A stage whose submits are played, for what only a real scheduler can do to a task: cases C06 and C25."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from rewind.core import lifecycle
from rewind.core.planning.plan import Request
from rewind.declared import forms
from rewind.local import airflow_config, stack
from rewind.local.airflow import Airflow
from rewind.registry import leases, rewinds, streams
from rewind.registry.database import now
from rewind.runtime.drivers import bundle
from rewind.views.status_rewinds import Rewinds, RewindView
from tests.support import fakes, stub_submit, tiers
from tests.support.stage import Stage
from tests.support.stub_submit import CLUSTER, HERE, Stub
from tests.support.workshop import PROJECT

STEP = "backfill"
HEARTBEAT_SECONDS = 20
TIMEOUT_SECONDS = 12
DAGS = f"""
from datetime import timedelta

from airflow.sdk import DAG
from rewind_airflow.submits import StepSubmit

RETRIED = {{"retries": 1, "retry_delay": timedelta(seconds=1)}}
LIMITED = {{"execution_timeout": timedelta(seconds={TIMEOUT_SECONDS})}}
for dag_id, options in (("played", {{}}), ("retried", RETRIED), ("limited", LIMITED)):
    with DAG(dag_id, schedule=None):
        StepSubmit(task_id="{STEP}", **options)
"""
# Of several masters: a lone one would be asked over HTTP.
CONNECTIONS = {
    HERE: {"conn_type": "spark", "host": "local[2]", "extra": json.dumps({"deploy-mode": "client"})},
    CLUSTER: {
        "conn_type": "spark",
        "host": "spark://one:7077,other:7077",
        "extra": json.dumps({"deploy-mode": "cluster"}),
    },
}


class StubStage(Stage):
    """A stage with the stub before the real spark-submit, and DAGs of one step each beside the product's."""

    def __init__(self, home: Path, jars: Path, name: str, partitions: int, **declared: Any) -> None:
        self.stub: Stub = stub_submit.install(home.parent / "stub")
        self.dags = home.parent / "dags"
        shutil.copytree(PROJECT / "dags", self.dags, ignore=shutil.ignore_patterns("__pycache__"))
        (self.dags / "played.py").write_text(DAGS)
        super().__init__(home, jars, name, partitions, dags=self.dags, **declared)
        self.connect(HERE, "POST", "/api/v2/connections")

    def connect(self, where: str, method: str = "PATCH", path: str = "/api/v2/connections/spark_default") -> None:
        """Say where submits go from now on."""
        self.api.call(method, path, {"connection_id": "spark_default", **CONNECTIONS[where]})

    def submitted(self, dag_id: str, run_id: str) -> str:
        """Open a rewind of which the run carries out one step, start the run, and return the rewind's id."""
        rewind_id = forms.rewind_id(dag_id, run_id)
        code = bundle.build(self.shop.settings, self.shop.pipeline)
        plan = fakes.plan(request=Request(self.shop.pipeline, reason=run_id), bundle=code.hash)
        with self.shop.registry() as connection:
            rewinds.open_rewind(connection, rewind_id, plan)
        self.api.trigger(dag_id, {}, run_id=run_id)
        return rewind_id

    def real_submits(self) -> int:
        """Return how many drivers Airflow's processes have started: steps, and those of streams."""
        with self.shop.registry() as connection:
            return self.stub.real() + sum(stream.starts for stream in streams.all_of(connection))

    def close(self, rewind_id: str) -> None:
        with self.shop.registry() as connection:
            rewinds.close(connection, rewind_id, lifecycle.ABORTED)

    def finish(self, rewind_id: str) -> None:
        """Let the driver in the cluster come to its end, with the mark of it in the registry."""
        with self.shop.registry() as connection:
            attempt = rewinds.begin_step(connection, rewind_id, STEP)
            rewinds.end_step(connection, rewind_id, STEP, attempt, "done", {})
        self.stub.state("FINISHED")

    def task(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return next(t for t in self.api.task_instances(dag_id, run_id) if t["task_id"] == STEP)

    def log_of(self, dag_id: str, run_id: str) -> str:
        """Return all of the newest try's log, with what was raised."""
        number = self.task(dag_id, run_id)["try_number"]
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{STEP}/logs/{number}?full_content=true"
        return json.dumps(self.api.call("GET", path))

    def held(self, rewind_id: str) -> leases.Lease | None:
        with self.shop.registry() as connection:
            found = leases.read(connection, f"{rewind_id}.{STEP}")
        return found if found is not None and found.holder is not None else None

    def page(self, rewind_id: str) -> RewindView:
        """Return what the status shows of a rewind."""
        with self.shop.registry() as connection:
            held = Rewinds(connection, [rewinds.read(connection, rewind_id)], now())
        (view,) = held.views({})[self.shop.pipeline]
        return view


@contextmanager
def stub_stage(
    home: Path, jars: Path, name: str, partitions: int, *, impatient: bool = False, **declared: Any
) -> Iterator[StubStage]:
    """Play on a stage whose connection can change, and if wished whose scheduler soon misses a heartbeat."""
    environment = Airflow.environment

    def stubbed(airflow: Airflow) -> dict[str, str]:
        whole = environment(airflow)
        del whole["AIRFLOW_CONN_SPARK_DEFAULT"]
        return {**whole, "PATH": f"{home.parent / 'stub' / 'bin'}{os.pathsep}{whole['PATH']}"}

    heartbeats = {
        "task_instance_heartbeat_timeout": str(HEARTBEAT_SECONDS),
        "task_instance_heartbeat_timeout_detection_interval": "3",
    }
    scheduler = airflow_config._LOOPS["scheduler"] | (heartbeats if impatient else {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Airflow, "environment", stubbed)
        patch.setitem(airflow_config._LOOPS, "scheduler", scheduler)
        made = None
        try:
            made = StubStage(home, jars, name, partitions, **declared)
            yield made
        finally:
            tiers.started["spark-submits"] += made.real_submits() if made else 0
            stack.down(home)
            shutil.rmtree(home / "kafka", ignore_errors=True)


@contextmanager
def heartbeats_cut(task: int) -> Iterator[None]:
    """Stop whoever sends the heartbeats of a task, while the task and its submit go on."""
    sender = psutil.Process(task).parent()
    assert sender is not None
    sender.suspend()
    try:
        yield
    finally:
        sender.resume()
