"""Airflow 3.3 on one machine: its four processes, their environment, and whether they are well."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

from rewind.airflow_api.client import AT_ONCE, AirflowApi, AirflowApiError
from rewind.core.errors import RetryError, RewindError
from rewind.core.settings import Settings
from rewind.local import airflow_config, ports, process_table, processes, readiness, watched
from rewind.local.processes import Command, Process
from rewind.local.progress import Look, Progress
from rewind.local.readiness import WAITS
from rewind.local.waiting import Waiting
from rewind.local.watched import Watched
from rewind.runtime.drivers import jvm

PORT_FIELD = "REWIND_AIRFLOW_PORT"
QUIET_SECONDS = 20.0
"""After so long without a parse those files are done that will ever show."""
# No servers for logs: everything is on one disk, and their fixed ports would collide between stacks.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
PATIENT = ("scheduler", "dag-processor")
# What a shell may export and the stack decides itself.
DECIDED = ("AIRFLOW_", "REWIND_", "SPARK_", "PYSPARK_", "PYTHONPATH")
OF_DAGS = (
    "REWIND_GARBAGE_SCHEDULE",
    "REWIND_PROOF_SCHEDULE",
    "REWIND_NIGHTLY_SCHEDULE",
    "REWIND_NIGHTLY_ZONE",
    "REWIND_NOTIFIER",
    "REWIND_NOTIFIER_ARGS",
    "REWIND_SPARK_HISTORY",
)
"""What may be chosen beside the settings, and is read in DAG files alone."""
OF_TASKS = (
    "AIRFLOW__METRICS__OTEL_ON",
    "REWIND_DRIVER_ENVIRONMENT",
    "REWIND_MIRROR_RETAIN_HOURS",
    "SPARK_CONF_DIR",
)
"""What may be chosen too, and is read by Airflow itself, by tasks and by drivers."""


@dataclass(frozen=True)
class Airflow:
    """An installation of Airflow below the home of a stack.

    Attributes:
        settings: What the tasks find in their environment; `settings.home` is the stack's.
        port: Port of its API server.
        dags: Folder of the DAG files.
        plugins: Folder of the plugins.
        database: URL of its database on PostgreSQL; empty for SQLite in its home.
        of_dags: What was chosen of `OF_DAGS` and `OF_TASKS`.
    """

    settings: Settings
    port: int
    dags: Path
    plugins: Path
    database: str = ""
    of_dags: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Its `AIRFLOW_HOME`."""
        return self.settings.home / "airflow"

    @property
    def url(self) -> str:
        """Address of the page and the REST API."""
        return f"http://{ports.HOST}:{self.port}"

    @property
    def password(self) -> str:
        """Password of the user `admin`."""
        return airflow_config.passwords(self.home)["admin"]

    def api(self, pauses: Sequence[float] = AT_ONCE) -> AirflowApi:
        """Return a client of its REST API for the user `admin`, which tries again after each of some pauses."""
        return AirflowApi(self.url, "admin", self.password, pauses)

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes, and so of every task."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(DECIDED)}
        programs = Path(sys.executable).parent
        connection = {"conn_type": "spark", "host": self.settings.spark_master, "extra": {"deploy-mode": "client"}}
        return {
            **inherited,
            **self.settings.environment(),
            **self.of_dags,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "JAVA_HOME": str(jvm.java_home()),
            "NO_PROXY": f"{ports.HOST},localhost",
            "PATH": f"{programs}:{inherited.get('PATH', os.defpath)}",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "SPARK_LOCAL_IP": ports.HOST,
        }

    def commands(self) -> list[Command]:
        """Return the processes that make it up."""
        environment, logs = self.environment(), self.settings.home / "logs"
        airflow = [sys.executable, "-m", "airflow"]
        reads = [self.home / "airflow.cfg"]
        return [
            Command(
                name, [*airflow, *arguments], environment | self._patience(name), logs / f"{name}.log", self.home, reads
            )
            for name, arguments in ARGUMENTS.items()
        ]

    def _patience(self, name: str) -> dict[str, str]:
        """Let those wait for SQLite that no event loop depends on: at a lock that lasts too long they end for good."""
        if self.database or name not in PATIENT:
            return {}
        return {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflow_config.sqlite(self.home, airflow_config.PATIENT_LOCK_SECONDS)
        }


def start(airflow: Airflow, waits: Waiting = WAITS) -> list[Process]:
    """Configure, migrate and start it, and wait until all four components are well.

    Raises:
        RewindError: The migration failed, or a process died or stood still before it was well.
    """
    airflow_config.passwords(airflow.home)
    places = (airflow.dags, airflow.plugins, airflow.database)
    text = airflow_config.render(airflow.home, ports.HOST, airflow.port, *places)
    airflow_config.write_private(airflow.home / "airflow.cfg", text)
    _migrate(airflow, waits)
    running = processes.ensure(airflow.commands(), airflow.settings.home / "stack")
    for process in running:
        well = functools.partial(_is_well, airflow.api(), process)
        readiness.wait_for(well, f"a heartbeat of {process.name}", process, waits)
    return running


def find(home: Path) -> list[Process]:
    """Return the processes of the Airflow of `home` that were started, alive or not."""
    known = (processes.load(name, home / "stack") for name in ARGUMENTS)
    return [process for process in known if process is not None]


def await_dags(airflow: Airflow, waits: Waiting = WAITS) -> None:
    """Wait until each DAG file has a DAG or an import error, or nothing has been parsed for a while.

    A file that makes no DAG, because there is no pipeline yet, never shows; that is not an error.
    """
    api, wanted = airflow.api(), _dag_files(airflow.dags)
    parsed, clock = Progress(time.monotonic(), QUIET_SECONDS), time.monotonic

    def look() -> Look[bool]:
        seen = {dag["fileloc"] for dag in api.dags()} | {failed["filename"] for failed in api.import_errors()}
        there = wanted & {Path(name).name for name in seen}
        parsed.note(there, clock())
        parsed.note_cpu(watched.cpu(_parsers(airflow), process_table.entries()), clock())
        return Look(there == wanted or parsed.stuck(clock()) or None, f"{len(there)} of {len(wanted)} files", there)

    waits.until("the DAG files to be parsed", look, lambda: _parsers(airflow))


def patiently(airflow: Airflow, what: str, call: Callable[[], None], waits: Waiting) -> None:
    """Call until Airflow carries it out.

    On SQLite its processes now and then hold each other up when the first runs begin; each call is harmless to repeat.
    """
    server = [process for process in find(airflow.settings.home) if process.name == "api-server"]

    def look() -> Look[bool]:
        try:
            call()
        except AirflowApiError as answered:
            if answered.status < 500:
                raise
            raise RetryError(str(answered)) from answered
        return Look(True)

    waits.until(what, look, lambda: [process.watched for process in server], pause=1)


def _parsers(airflow: Airflow) -> list[Watched]:
    """Return what parses at the moment: children of the DAG processor, which itself is never quite idle."""
    processor = processes.load("dag-processor", airflow.settings.home / "stack")
    table = process_table.entries().values()
    return [Watched("a parser of DAG files", (e.pid,)) for e in table if processor and e.parent == processor.pid]


def _migrate(airflow: Airflow, waits: Waiting) -> None:
    # Of the database only a hash: its URL may hold a password.
    database = hashlib.sha256(airflow.database.encode()).hexdigest()[:8]
    stamp, version = airflow.home / "migrated", f"{metadata.version('apache-airflow')} {database}"
    if stamp.exists() and stamp.read_text() == version:
        return
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    code, said = readiness.run(command, airflow.environment(), "Airflow's database", waits)
    if code:
        raise RewindError("`airflow db migrate` failed:\n" + "\n".join(said.splitlines()[-15:]))
    stamp.write_text(version)


def _is_well(api: AirflowApi, process: Process) -> bool:
    try:
        health = api.health()
    except (RetryError, AirflowApiError):
        return False
    if process.name == "api-server":
        return bool(health["metadatabase"]["status"] == "healthy")
    component = process.name.replace("-", "_")
    return _beats(health[component], f"latest_{component}_heartbeat", process.began)


def _beats(health: Mapping[str, Any], key: str, since: float) -> bool:
    """A heartbeat before the start is the predecessor's, which Airflow calls healthy for half a minute."""
    beat = health.get(key)
    return health["status"] == "healthy" and beat is not None and datetime.fromisoformat(beat).timestamp() >= since


def _dag_files(folder: Path) -> set[str]:
    """Return the names of the files that Airflow parses: those that speak of it and are not ignored."""
    file = folder / ".airflowignore"
    ignored = [line.strip().rstrip("/") for line in file.read_text().splitlines()] if file.exists() else []
    files = (path for path in folder.rglob("*.py") if not _matches(path.relative_to(folder), ignored))
    return {path.name for path in files if re.search(r"dag.*airflow|airflow.*dag", path.read_text().lower(), re.DOTALL)}


def _matches(path: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatch(part, pattern) for pattern in patterns for part in path.parts)
