"""The whole local stack in a home of its own: up, again, fixed, refused, down."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewind.airflow_api.client import AirflowApi, AirflowApiError
from rewind.core.errors import RefusedError
from rewind.local import broker, ports, processes, stack
from rewind.local.stack import Stack

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(600)]

DAG = """
import json
import os
import subprocess
from airflow.sdk import dag, task

@dag(schedule=None)
def probe():
    @task(pool="streams")
    def nap():
        subprocess.run(["sleep", "600"])

    @task
    def look():
        print("settings:", os.environ["REWIND_KAFKA_BOOTSTRAP"], os.environ["AIRFLOW_CONN_SPARK_DEFAULT"])

    nap(), look()

probe()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack") / "home"


@pytest.fixture(scope="module")
def running(home: Path, jars: Path) -> Iterator[Stack]:
    yield bring_up(home, jars)
    stack.down(home)


def bring_up(home: Path, jars: Path, **chosen: str) -> Stack:
    dags, plugins = home.parent / "dags", home.parent / "plugins"
    dags.mkdir(exist_ok=True)
    plugins.mkdir(exist_ok=True)
    (dags / "probe.py").write_text(DAG)
    return stack.up(home, dags=dags, plugins=plugins, environment={"REWIND_JARS": str(jars), **chosen})


def pids(home: Path) -> dict[str, int | None]:
    return {member.name: member.pid for member in stack.status(home)}


def wait_for_states(api: AirflowApi, run_id: str, wanted: dict[str, str]) -> None:
    deadline = time.monotonic() + 120
    while (states := {task["task_id"]: task["state"] for task in api.task_instances("probe", run_id)}) != wanted:
        assert time.monotonic() < deadline, states
        time.sleep(0.5)


def test_f25_what_it_keeps_is_for_its_user_alone(running: Stack, home: Path) -> None:
    assert home.stat().st_mode & 0o777 == 0o700


def test_up_again_leaves_all_processes(running: Stack, home: Path, jars: Path) -> None:
    before = pids(home)
    again = bring_up(home, jars)

    assert None not in before.values()
    assert pids(home) == before
    assert (again.airflow_url, again.password) == (running.airflow_url, running.password)
    assert stack.find(home) == again


def test_dags_run_unpaused_with_the_settings_of_the_stack(running: Stack) -> None:
    api = running.api()
    assert {dag["dag_id"]: dag["is_paused"] for dag in api.dags()} == {"probe": False}
    assert api.import_errors() == []

    run = api.trigger("probe", {}, run_id="first")
    # `nap` sleeps on, for the test that takes everything down.
    wait_for_states(api, run["dag_run_id"], {"nap": "running", "look": "success"})

    log = api.task_log("probe", "first", "look")
    assert f"settings: {running.broker.bootstrap}" in log
    assert '"host": "local[2]"' in log


def test_the_viewer_may_look_but_not_trigger(running: Stack) -> None:
    passwords = running.airflow.home / "passwords.json"
    viewer = AirflowApi(running.airflow_url, "viewer", json.loads(passwords.read_text())["viewer"])

    assert [dag["dag_id"] for dag in viewer.dags()] == ["probe"]
    with pytest.raises(AirflowApiError) as refused:
        viewer.trigger("probe", {})
    assert refused.value.status == 403


def test_what_is_not_chosen_stays_as_it_is(running: Stack, home: Path) -> None:
    before = pids(home)
    again = stack.up(home, environment={})

    assert pids(home) == before
    assert again.settings == running.settings
    assert again.airflow.dags == home.parent / "dags"


def test_up_starts_what_died_on_the_same_ports(running: Stack, home: Path, jars: Path) -> None:
    before = pids(home)
    known = [processes.load(name, home / "stack") for name in (broker.NAME, "triggerer")]
    processes.kill([process for process in known if process is not None])
    fixed = bring_up(home, jars)

    after = pids(home)
    assert None not in after.values()
    assert {name for name in after if after[name] != before[name]} == {broker.NAME, "triggerer"}
    assert fixed.broker.bootstrap == running.broker.bootstrap


@pytest.mark.parametrize("field", ["REWIND_KAFKA_PORT", "REWIND_AIRFLOW_PORT"])
def test_a_taken_port_is_refused_before_anything_starts(field: str, tmp_path: Path, jars: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as server, pytest.raises(RefusedError) as refused:
        bring_up(tmp_path / "home", jars, **{field: str(server.getsockname()[1])})

    assert refused.value.field == field
    assert all(pid is None for pid in pids(tmp_path / "home").values())


def test_down_leaves_no_process_within_a_minute(running: Stack, home: Path) -> None:
    # A guest that does not answer a request to end, as a demo that was killed may leave one.
    deaf = ["sh", "-c", "trap '' TERM; sleep 600"]
    guest = processes.Command("guest", deaf, {"REWIND_HOME": str(home)}, home / "guest.log", home)
    processes.ensure([guest], home / "demo" / "processes")
    known = [processes.load(name, home / "stack") for name in stack.NAMES]
    began = time.monotonic()
    stack.down(home)

    assert time.monotonic() - began < 60
    assert [process.members() for process in known if process is not None] == [[]] * 5
    assert with_home_in_environment(home) == []
    assert all(pid is None for pid in pids(home).values())
    stack.down(home)


def with_home_in_environment(home: Path) -> list[int]:
    """Processes that inherited the stack's home, in whatever session they are."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"REWIND_HOME={home}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
