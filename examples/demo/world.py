"""The demo's world: its stack, names, places, and what it asks of registry, broker and Airflow."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kafka import KafkaAdminClient
from rich.console import Console

from examples.demo import workers
from examples.demo.errors import DemoError
from rewind.airflow_api.client import AirflowApi, AirflowApiError
from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.model import Topic
from rewind.core.settings import Settings
from rewind.local import airflow
from rewind.local.progress import Look
from rewind.local.stack import Stack
from rewind.local.voice import Voice
from rewind.local.waiting import Waiting
from rewind.local.watched import Watched
from rewind.registry import streams
from rewind.registry.database import writing
from rewind.runtime.kafka.broker import Broker
from rewind.views import status
from rewind.views.status import PipelineView, Status
from rewind.views.status_rewinds import RewindView


@dataclass(frozen=True)
class Names:
    """What this demo calls its things; a second demo on the same stack gets others.

    Attributes:
        pipeline: Its pipeline.
        topic: Its source topic.
        output: Base name of the outputs.
    """

    pipeline: str
    topic: str
    output: str


def names_of(number: int) -> Names:
    """Return the names of the demo of a number, from 1."""
    suffix = f"_{number}" if number > 1 else ""
    return Names(f"visits_converter{suffix}", f"visits{suffix}", f"visits_converted{suffix}")


def free_names(pipelines: set[str], topics: set[str]) -> Names:
    """Return the first names that neither a deployed pipeline nor a topic has, outputs of theirs included."""
    bases = {name.rpartition("-g")[0] for name in topics}
    numbered = map(names_of, range(1, len(pipelines) + len(topics) + 2))
    return next(n for n in numbered if n.pipeline not in pipelines and n.topic not in topics and n.output not in bases)


@dataclass(frozen=True)
class World:
    """Everything a step of the demo needs.

    Attributes:
        stack: The local stack.
        api: A client of its Airflow.
        names: What things are called.
        folder: The demo's own folder.
        voice: What it speaks with.
    """

    stack: Stack
    api: AirflowApi
    names: Names
    folder: Path
    voice: Voice

    @property
    def settings(self) -> Settings:
        """Settings of the stack."""
        return self.stack.settings

    @property
    def broker(self) -> Broker:
        """The broker."""
        return Broker(self.settings)

    @property
    def rewind_dag(self) -> str:
        """The rewind DAG of the pipeline."""
        return f"rewind_{self.names.pipeline}"

    @property
    def console(self) -> Console:
        """Where it speaks."""
        return self.voice.console

    @functools.cached_property
    def waits(self) -> Waiting:
        """How it waits: for as long as something moves, and all that it rests on is able to."""
        return Waiting(self.voice, lambda: workers.all_of(self.settings, self._owns))

    def driver(self, owner: str) -> list[Watched]:
        """Return the driver of a stream."""
        return workers.drivers(self.settings, lambda found: found == owner)

    def submits(self) -> list[Watched]:
        """Return what tasks have submitted and what runs now."""
        return workers.submits(self.settings)

    def status(self) -> Status:
        """Return the whole state."""
        return status.read(self.settings, self.broker)

    def pipeline(self) -> PipelineView:
        """Return the state of the demo's pipeline."""
        return self.status().pipeline(self.names.pipeline)

    def rewind(self, rewind_id: str) -> RewindView | None:
        """Return a rewind of the pipeline, None until it is active."""
        return next((r for r in self.pipeline().rewinds if r.id == rewind_id), None)

    def topic(self, name: str) -> Topic:
        """Return a topic that must be there."""
        found = self.broker.topic(name)
        if found is None:
            raise DemoError(f"topic {name} is not on the broker")
        return found

    def groups(self) -> set[str]:
        """Return the names of all consumer groups."""
        admin = KafkaAdminClient(bootstrap_servers=self.settings.bootstrap)
        try:
            return {group["group_id"] for group in admin.list_groups()}
        finally:
            admin.close()

    def run_dag(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a DAG run, wait until it has ended well, and return its id.

        Raises:
            DemoError: It failed.
            StuckError: Nothing of it moved any more.
        """
        run_id = self.start_dag(dag_id, conf)
        self.await_run(dag_id, run_id)
        return run_id

    def await_run(self, dag_id: str, run_id: str) -> None:
        """Wait until a run has ended well, as long as its tasks or what they submitted move."""

        def look() -> Look[bool]:
            ended, states = self.run_ended(dag_id, run_id), self.task_states(dag_id, run_id)
            return Look(ended or None, ", ".join(f"{task} {state}" for task, state, _ in states), states)

        self.waits.until(f"{dag_id} to end", look, self.submits, pause=1)

    def task_states(self, dag_id: str, run_id: str) -> list[tuple[str, str, int]]:
        """Return the tasks of a run that have begun, with state and attempt.

        A sensor goes back and forth between some states: runs with one are not followed by these.
        """
        found = self.api.task_instances(dag_id, run_id)
        return sorted((t["task_id"], t["state"], t["try_number"]) for t in found if t["state"])

    def start_dag(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a DAG run and return its id, once Airflow has parsed the DAG."""

        def look() -> Look[bool]:
            known = {dag["dag_id"] for dag in self.api.dags()}
            return Look(dag_id in known or None, f"{len(known)} DAGs are there", known)

        self.waits.until(f"the DAG {dag_id}", look, pause=1)
        run_id = f"demo__{datetime.now(UTC).isoformat()}"
        airflow.patiently(
            self.stack.airflow, f"{dag_id} to start", lambda: self._trigger(dag_id, conf, run_id), self.waits
        )
        return run_id

    def _trigger(self, dag_id: str, conf: Mapping[str, Any], run_id: str) -> None:
        self.api.unpause(dag_id)
        try:
            self.api.trigger(dag_id, conf, run_id)
        except AirflowApiError as refused:
            # An earlier try was carried out although it was answered with an error.
            if refused.status != HTTPStatus.CONFLICT:
                raise

    def run_ended(self, dag_id: str, run_id: str) -> bool:
        """Return whether a run has ended well.

        Raises:
            DemoError: It has failed.
        """
        state = self.api.dag_run(dag_id, run_id)["state"]
        if state == "failed":
            where = f"{self.stack.airflow_url}/dags/{dag_id}/runs/{quote(run_id)}"
            raise DemoError(
                f"{dag_id} failed: {'; '.join(self._failures(dag_id, run_id))}. Its tasks and logs: {where}"
            )
        return bool(state == "success")

    def _owns(self, owner: str) -> bool:
        return _belongs(owner, self.names)

    def _failures(self, dag_id: str, run_id: str) -> list[str]:
        tasks = [t for t in self.api.task_instances(dag_id, run_id) if t["state"] == "failed"]
        return [f"{t['task_id']}: {_last_error(self._log(dag_id, run_id, t))}" for t in tasks]

    def _log(self, dag_id: str, run_id: str, task: Mapping[str, Any]) -> str:
        return self.api.task_log(dag_id, run_id, task["task_id"], task["try_number"])


def drain_earlier(world: World) -> None:
    """Let the streams of earlier demos end: this one needs the machine. Their names are kept in the demo's folder."""
    record = world.folder / "earlier.json"
    earlier = [Names(**body) for body in json.loads(record.read_text())] if record.exists() else []
    gone = [names for names in earlier if names != world.names]
    with writing(world.settings.registry_url) as connection:
        for stream in streams.all_of(connection):
            if any(_belongs(stream.owner, old) for old in gone):
                streams.wish(connection, stream.owner, stream.kind, streams.DRAIN)
    record.write_text(json.dumps([vars(old) for old in (*gone, world.names)]))


def _belongs(owner: str, old: Names) -> bool:
    if owner == names.mirror_owner(old.topic):
        return True
    try:
        return names.parse_job_id(owner)[0] == old.pipeline
    except RefusedError:
        return False


def _last_error(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return " | ".join((errors or lines)[-3:])[-1_500:]
