"""Rights in the team's deployment: what `init` prepares, in Airflow's FAB auth manager and a real API server."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from rewind.airflow_api.client import AirflowApi, AirflowApiError
from rewind.core.settings import from_environment
from rewind.local import ports
from rewind.local.stack import POOL
from rewind.web import offers
from tests.support import page_rights, page_states
from tests.support.page_rights import OF_ONE, OTHER, TRICKS, renamed
from tests.support.page_states import NAME, REWIND_ID
from tests.support.workshop import PROJECT, wait_for

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(600)]

SERVICE = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())["services"]["init"]["environment"]
TAKEN_OVER = ("AUTH_MANAGER", "DAG_BUNDLE_CONFIG_LIST", "MIN_SERIALIZED_DAG_UPDATE_INTERVAL")
"""Airflow's settings that are the deployment's own; the others are places of its containers."""
PASSWORD = "of-a-test"
PERSONS = {f"{name}_{role}": f"rewind_{name}_{role}" for name in (NAME, OTHER) for role in ("viewer", "operator")}
EVERYBODY = (None, *PERSONS, "admin", "viewer")
KINDS = ("abort", "consumers", "deploy", "nightly_replay", "rewind", "rollback", "stream")
LISTS = (
    "/rewind/api/overview",
    "/rewind/api/history",
    "/rewind/metrics",
    "/api/v2/dags?limit=100",
    "/api/v2/dags/~/dagRuns?limit=100",
    "/api/v2/dags/~/dagRuns/~/hitlDetails",
)
MAKE_PERSONS = """
import json, runpy, sys
# Again, as at each upgrade, and for pipelines that came.
runpy.run_path(sys.argv[3], run_name="__main__")
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
with get_application_builder() as builder:
    for name, role in json.loads(sys.argv[1]).items():
        found = builder.sm.find_role(role)
        assert found and builder.sm.add_user(name, name, name, f"{name}@rewind.invalid", found, sys.argv[2])
"""


class Asked(NamedTuple):
    """A request of the table.

    Attributes:
        acts: Whether it takes an operator.
        good: What it is answered with when it is allowed.
    """

    method: str
    path: str
    acts: bool = False
    good: int = 200
    body: Any = None


class Team:
    """A deployment's API server with two pipelines, and its users."""

    def __init__(self, home: Path, base: str) -> None:
        self.home, self.base = home, base
        self._clients: dict[str | None, httpx.Client] = {}

    def client(self, person: str | None) -> httpx.Client:
        """Return a client of a person who has logged in, or of nobody."""
        if person not in self._clients:
            made = httpx.Client(base_url=self.base, timeout=60)
            if person is not None:
                password = {"admin": 'one "quoted"', "viewer": "two"}.get(person, PASSWORD)
                answer = made.post("/auth/token", json={"username": person, "password": password})
                assert answer.status_code == 201, answer.text
                made.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
            self._clients[person] = made
        return self._clients[person]

    def answer(self, person: str | None, asked: Asked) -> int:
        """Return the status of one answer."""
        return self.client(person).request(asked.method, asked.path, json=asked.body).status_code


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[tuple[Team, str]]:
    home = tmp_path_factory.mktemp("team")
    places = {"REWIND_HOME": home / "home", "REWIND_PIPELINES": home / "pipelines", "REWIND_JARS": jars}
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT / "include"),
        **{name: str(place) for name, place in places.items()},
        "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "AIRFLOW_ADMIN_PASSWORD": 'one "quoted"',
        "AIRFLOW_VIEWER_PASSWORD": "two",
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "AIRFLOW__API__SECRET_KEY": "t" * 64,
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        **{name: value for name, value in SERVICE.items() if name.endswith(TAKEN_OVER)},
    }
    settings = from_environment(environment)
    settings.data.mkdir(parents=True)
    page_states.declare(settings)
    night = page_rights.seed(settings)
    deploy = PROJECT / "deploy" / "airflow"
    persons = ["-c", MAKE_PERSONS, json.dumps(PERSONS), PASSWORD, str(deploy / "rights.py")]
    for command in ([sys.executable, str(deploy / "prepare.py")], [sys.executable, *persons]):
        subprocess.run(command, env=environment, check=True)
    subprocess.run(["airflow", "dags", "reserialize"], env=environment, check=True)
    port = ports.choose("port", None, home / "port")
    with (home / "api.log").open("w") as log:
        command = ["airflow", "api-server", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    made = Team(home, f"http://127.0.0.1:{port}")
    try:
        wait_for("the API server", lambda: _is_up(made.base), 120)
        yield made, night
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)


def _is_up(base: str) -> bool:
    try:
        return httpx.get(f"{base}/api/v2/monitor/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_init_makes_what_airflow_needs(team: tuple[Team, str]) -> None:
    home = team[0].home
    name, slots, text = POOL
    with sqlite3.connect(home / "airflow.db") as airflow:
        found = airflow.execute("select slots, description from slot_pool where pool = ?", (name,)).fetchall()
        roles = airflow.execute("select name from ab_role where name like 'rewind%'").fetchall()
    assert found == [(slots, text)]
    assert {role for (role,) in roles} == set(PERSONS.values())
    assert (home / "home" / "events").is_dir()
    with sqlite3.connect(home / "home" / "registry.db") as registry:
        assert registry.execute("select count(*) from alembic_version").fetchone() == (1,)


def test_the_command_line_acts_as_one_of_its_users(team: tuple[Team, str]) -> None:
    api = AirflowApi(team[0].base, f"{NAME}_operator", PASSWORD)
    assert api.trigger(f"nightly_replay_{NAME}", {})["triggering_user_name"] == f"{NAME}_operator"
    with pytest.raises(AirflowApiError, match="403"):
        api.trigger(f"nightly_replay_{OTHER}", {})


def test_each_dag_of_a_pipeline_is_one_of_its_roles(team: tuple[Team, str]) -> None:
    dags = team[0].client("admin").get("/api/v2/dags?limit=100").json()["dags"]
    of_all = {"check_pipelines", "collect_garbage", "prove_mirrors", "watch_streams", "mirror_clicks", "mirror_baskets"}
    assert {dag["dag_id"] for dag in dags} == of_all | {f"{kind}_{name}" for kind in KINDS for name in (NAME, OTHER)}


def of_the_page(pipeline: str, night: str) -> list[Asked]:
    """What our page answers about one pipeline, and what it does for it."""
    mine = (lambda path: path) if pipeline == NAME else renamed
    shown = [Asked("GET", mine(f"/rewind/{path}".replace("NIGHT", night))) for path in OF_ONE]
    # A body that no action takes: who may act is told so, and nothing is done.
    action = mine(f"/rewind/api/rewinds/{REWIND_ID}/actions")
    return [*shown, *(Asked("POST", f"{action}/{name}", True, 422, {"nonsense": 1}) for name in offers.DAGS)]


def of_airflow(pipeline: str) -> list[Asked]:
    """What Airflow answers about the DAGs of one pipeline, and what it does with them."""
    made = []
    for kind in KINDS:
        dag = f"/api/v2/dags/{kind}_{pipeline}"
        made += [
            Asked("GET", dag),
            Asked("GET", f"{dag}/dagRuns"),
            Asked("GET", f"{dag}/dagRuns/r1/taskInstances", good=404),
        ]
        made += [Asked("PATCH", dag, True, body={"is_paused": False})]
        made += [Asked("POST", f"{dag}/dagRuns", True, 400 if kind == "abort" else 200, {"logical_date": None})]
        answer = {"chosen_options": ["Approve"], "params_input": {}}
        made += [Asked("PATCH", f"{dag}/dagRuns/r1/taskInstances/approve/-1/hitlDetails", True, 404, answer)]
    return made


def expected(person: str | None, pipeline: str, asked: Asked) -> int:
    """The table: nobody is let in, a role sees and acts on its own pipeline, and Airflow's own roles on all."""
    if person is None:
        return 401
    may = person == "admin" or (person == "viewer" and not asked.acts)
    name, _, role = person.rpartition("_")
    may |= name == pipeline and (role == "operator" or not asked.acts)
    return asked.good if may else 403


@pytest.mark.shows(
    "secure", roles_by_fab="routes of page and Airflow x 7 persons x 2 pipelines as the table says, 0 leaks"
)
def test_each_role_sees_and_acts_on_its_own_pipeline(team: tuple[Team, str]) -> None:
    made, night = team
    table = {
        (person, pipeline, asked.method, asked.path): (made.answer(person, asked), expected(person, pipeline, asked))
        for pipeline in (NAME, OTHER)
        for asked in (*of_the_page(pipeline, night), *of_airflow(pipeline))
        for person in EVERYBODY
    }
    assert {key: found for key, found in table.items() if found[0] != found[1]} == {}


def test_a_mirror_is_seen_by_the_readers_of_its_topic_and_stopped_by_neither(team: tuple[Team, str]) -> None:
    made, _ = team
    for person in PERSONS:
        topic = "clicks" if person.startswith(NAME) else "baskets"
        for name in ("clicks", "baskets"):
            dag = f"/api/v2/dags/mirror_{name}"
            assert made.answer(person, Asked("GET", dag)) == (200 if name == topic else 403), (person, name)
            assert made.answer(person, Asked("PATCH", dag, body={"is_paused": True})) == 403, (person, name)


@pytest.mark.shows("secure", tricks_by_fab="21, 0 leaks")
def test_no_trick_and_no_list_shows_another_pipeline(team: tuple[Team, str]) -> None:
    made, _ = team
    for person in (f"{NAME}_viewer", f"{NAME}_operator"):
        client = made.client(person)
        for path, headers in TRICKS:
            answer = client.get(f"/rewind/{path}", headers=headers)
            assert answer.status_code in (200, 403, 404), path
            told = "a row of orders" if answer.status_code != 200 else "a row of orders|baskets|orders-g|orders_out"
            assert not re.search(told, answer.text), path
        for path in (
            "rewind/api/overview",
            "rewind/api/history",
            "rewind/metrics",
            "api/v2/dags",
            "api/v2/dags/~/dagRuns",
        ):
            answer = client.get(f"/{path}", params={"limit": 100} if path.startswith("api") else {})
            assert (answer.status_code, re.findall("orders|baskets", answer.text)) == (200, []), path
