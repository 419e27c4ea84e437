"""The local stack: a broker and an Airflow under one home, brought up, looked at and taken down."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rewind.airflow_api.client import AT_ONCE, AirflowApi
from rewind.core.settings import Settings, from_environment
from rewind.local import airflow, broker, ports, processes
from rewind.local.airflow import Airflow
from rewind.local.airflow_config import DATABASE_FIELD, check_database, write_private
from rewind.local.processes import Process
from rewind.local.voice import SILENT, Voice
from rewind.local.waiting import Waiting
from rewind.registry import database
from rewind.runtime import installation
from rewind.runtime.drivers import supervise

PROJECT = Path(__file__).resolve().parents[3]
# Supervisors of streams wait here, so that they never take the place of a step.
POOL = ("streams", 128, "Supervisors of streams: as many as there are generations")
STOP_SECONDS = 8
STREAM_SECONDS = 22
NAMES = (broker.NAME, *airflow.ARGUMENTS)


@dataclass(frozen=True)
class Stack:
    """A stack that runs.

    Attributes:
        airflow: Its Airflow.
        broker: Its broker.
    """

    airflow: Airflow
    broker: broker.Broker

    @property
    def settings(self) -> Settings:
        """What jobs and commands against this stack read from their environment."""
        return self.airflow.settings

    @property
    def airflow_url(self) -> str:
        """Address of Airflow's page and REST API."""
        return self.airflow.url

    @property
    def user(self) -> str:
        """User that may do everything."""
        return "admin"

    @property
    def password(self) -> str:
        """Password of `user`."""
        return self.airflow.password

    def api(self, pauses: Sequence[float] = AT_ONCE) -> AirflowApi:
        """Return a client of Airflow's REST API as `user`, which tries again after each of some pauses."""
        return self.airflow.api(pauses)


@dataclass(frozen=True)
class Member:
    """What `status` says of one process: its pid when it runs, and where its log is."""

    name: str
    state: str
    pid: int | None
    log: Path


def home() -> Path:
    """Return the home of the local stack: `REWIND_HOME`, else `.rewind` of the checkout."""
    return Path(os.environ.get("REWIND_HOME") or PROJECT / ".rewind").resolve()


def up(
    home: Path,
    *,
    dags: Path | None = None,
    plugins: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    voice: Voice = SILENT,
) -> Stack:
    """Return the stack of `home`, after starting what does not run and restarting what should run otherwise.

    What is not chosen stays as it is while any process of the stack runs; else it is the checkout's.

    Args:
        home: Folder of everything local.
        dags: Folder of the DAG files.
        plugins: Folder of Airflow's plugins.
        environment: Where ports, Airflow's database, all `REWIND_*` settings but home and broker, `airflow.OF_DAGS` and
            `airflow.OF_TASKS` are chosen.
        voice: Says what is waited for.

    Raises:
        RefusedError: A chosen port is taken, the database is of no known kind, or Java or the jars are missing.
        RewindError: A process died or stood still before it was well; with the end of its log.
    """
    waits = Waiting(voice)
    stack = _with_broker(home.resolve(), dags, plugins, environment, waits)
    _prepare(stack)
    airflow.start(stack.airflow, waits)
    airflow.patiently(stack.airflow, "a pool of Airflow", lambda: stack.api().set_pool(*POOL), waits)
    airflow.await_dags(stack.airflow, waits)
    airflow.patiently(stack.airflow, "DAGs to be unpaused", lambda: stack.api().unpause(), waits)
    return stack


def find(home: Path) -> Stack | None:
    """Return the stack of `home` if its broker runs, else None."""
    known, kafka = _record(home), broker.find(home)
    if not known or kafka is None:
        return None
    settings = from_environment(known["environment"])
    folders = (Path(known["dags"]), Path(known["plugins"]))
    return Stack(Airflow(settings, known["port"], *folders, known.get("database", ""), known.get("of_dags", {})), kafka)


def environment(home: Path) -> dict[str, str]:
    """Return the `REWIND_*` variables of the stack of `home`, running or not; empty when there was none."""
    variables: dict[str, str] = _record(home).get("environment", {})
    return variables


def down(home: Path) -> None:
    """Stop the stack of `home`, and the stream drivers that outlive Airflow.

    Supervisors and guests go first, since supervisors would start the drivers again; then the drivers, which need the
    broker to finish their batch; the broker last.

    Raises:
        RewindError: A process cannot be stopped.
    """
    processes.stop([*airflow.find(home), *_guests(home)], STOP_SECONDS)
    try:
        _stop_streams(home)
    finally:
        known = processes.load(broker.NAME, home / "stack")
        processes.stop([known] if known else [], broker.STOP_SECONDS)


def status(home: Path) -> list[Member]:
    """Return the state of each process of the stack of `home`."""
    return [_member(name, processes.load(name, home / "stack"), home) for name in NAMES]


def _member(name: str, process: Process | None, home: Path) -> Member:
    log = home / "logs" / f"{name}.log"
    if process is None:
        return Member(name, "never started", None, log)
    if not process.alive:
        return Member(name, "stopped", None, log)
    return Member(name, "running", process.pid, log)


def _with_broker(
    home: Path, dags: Path | None, plugins: Path | None, chosen: Mapping[str, str], waits: Waiting
) -> Stack:
    kept = _record(home) if any(member.pid for member in status(home)) else {}
    # Both ports are settled before anything starts: a refusal leaves nothing behind.
    port = _airflow_port(home, chosen)
    url = check_database(chosen.get(DATABASE_FIELD) or kept.get("database", ""))
    kafka_port = ports.parse(broker.PORT_FIELD, chosen.get(broker.PORT_FIELD))
    kafka = broker.start(home, kafka_port, jars=jars(home, chosen), waits=waits)
    settings = _settings(home, kafka, {**kept.get("environment", {}), **chosen})
    dags, plugins = dags or _folder("dags", kept), plugins or _folder("plugins", kept)
    return Stack(Airflow(settings, port, dags, plugins, url, _passed_on(kept, chosen)), kafka)


def _passed_on(kept: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return what reaches Airflow beside the settings: what is chosen now, else what a stack that runs was told."""
    names = (*airflow.OF_DAGS, *airflow.OF_TASKS)
    return {**kept.get("of_dags", {}), **{name: value for name in names if (value := chosen.get(name))}}


def _folder(name: str, kept: Mapping[str, Any]) -> Path:
    return Path(kept.get(name, PROJECT / name))


def _prepare(stack: Stack) -> None:
    settings = stack.settings
    for folder in (settings.data, settings.mirrors, settings.generations, settings.evidence):
        folder.mkdir(parents=True, exist_ok=True)
    # Below it are rows of all pipelines, in evidence, mirrors and the registry, and Airflow's keys.
    settings.home.chmod(0o700)
    installation.begin(settings, datetime.now(UTC))
    database.upgrade(settings.registry_url)
    # Before any task can run: `down` has to find the drivers that the first one may start.
    _remember(stack)


def jars(home: Path, chosen: Mapping[str, str]) -> Path:
    """Return the folder of the jars: the chosen one, that of a home, or that of the checkout, which serves all."""
    own = home / "jars"
    return Path(chosen.get("REWIND_JARS") or (own if own.is_dir() else PROJECT / ".rewind" / "jars"))


def _settings(home: Path, kafka: broker.Broker, chosen: Mapping[str, str]) -> Settings:
    defaults = {
        "REWIND_PIPELINES": str(PROJECT / "include" / "pipelines"),
        "REWIND_JOBS": str(PROJECT / "jobs"),
        "REWIND_JARS": str(jars(home, chosen)),
    }
    own = {"REWIND_HOME": str(home), "REWIND_KAFKA_BOOTSTRAP": kafka.bootstrap}
    return from_environment({**defaults, **chosen, **own})


def _airflow_port(home: Path, chosen: Mapping[str, str]) -> int:
    port = ports.parse(airflow.PORT_FIELD, chosen.get(airflow.PORT_FIELD))
    state = home / "stack" / "ports.json"
    server = processes.load("api-server", home / "stack")
    last = ports.remembered(airflow.PORT_FIELD, state)
    if server is not None and server.alive and last is not None and port in (None, last):
        return last
    return ports.choose(airflow.PORT_FIELD, port, state)


def _record(home: Path) -> dict[str, Any]:
    """Return what the last `up` of `home` was asked for, empty when there was none."""
    file = home / "stack" / "stack.json"
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return known


def _remember(stack: Stack) -> None:
    known = {
        "environment": stack.settings.environment(),
        "port": stack.airflow.port,
        "dags": str(stack.airflow.dags),
        "plugins": str(stack.airflow.plugins),
        "database": stack.airflow.database,
        "of_dags": dict(stack.airflow.of_dags),
    }
    write_private(stack.settings.home / "stack" / "stack.json", json.dumps(known, indent=2))


def _stop_streams(home: Path) -> None:
    known = environment(home)
    if known:
        supervise.stop_all(from_environment(known), STREAM_SECONDS)


def _guests(home: Path) -> list[Process]:
    """Return what programs on the stack started and recorded below the home, such as the demo's producer."""
    return [
        process for record in home.glob("*/processes/*.json") if (process := processes.load(record.stem, record.parent))
    ]
