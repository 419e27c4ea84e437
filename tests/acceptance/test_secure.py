"""What the issue `secure` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=secure` runs both.
"""

from __future__ import annotations

import configparser
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from sqlalchemy import URL, make_url

from examples.demo.driver import living_drivers
from rewind.core.settings import Settings
from rewind.registry import database, generations, leases, streams
from rewind.registry.database import now
from rewind.runtime.drivers import supervise
from tests.scenarios.airflow_life import visit
from tests.scenarios.crashes import NOTHING_LEFT, REWIND, Life
from tests.scenarios.hosts import Fleet
from tests.scenarios.rights import LEAST, Watched
from tests.support import postgres, secured
from tests.support.host_agent import OWNER
from tests.support.stage import Stage
from tests.support.workshop import PROJECT, Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
RECORDS = 300
LOOKS = 200
PLANTED = {
    "AIRFLOW__CORE__FERNET_KEY": "planted-fernet",
    "AIRFLOW__API_AUTH__JWT_SECRET": "planted-jwt",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:planted-database@db/airflow",
    "AIRFLOW_CONN_KAFKA": '{"password": "planted-connection"}',
    "REWIND_AIRFLOW_PASSWORD": "planted-login",
}
"""What a submit's parent has in its environment, and no driver may get."""
OF_LOGINS = (secured.PASSWORD, secured.KEY_PASSWORD, secured.CLIENT_SECRET)


class Counting(Life):
    """A life of a pipeline with state."""

    def begin(self, records: int) -> None:
        for p in range(2):
            at = (f"2025-09-04T{n // 60:02}:{n % 60:02}:00" for n in range(p, records, 2))
            bodies = (
                {"event_id": f"v{p}-{n}", "visit_id": n, "user_id": n % 5, "event_time": t} for n, t in enumerate(at)
            )
            self.shop.produce(*((None, json.dumps(body).encode()) for body in bodies), partition=p)
        self.live()


@pytest.mark.parametrize(
    ("listener", "like"),
    [("SCRAM", ""), ("SCRAM", "visits_window_counter"), ("MUTUAL", ""), ("OAUTH", "")],
)
def test_shows_1_a_life_on_a_secured_broker(
    figure: Figure,
    tmp_path: Path,
    jars: Path,
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    listener: str,
    like: str,
) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPARK_CONF_DIR", str(with_event_log(tmp_path)))
    folder = tmp_path / "pipelines"
    folder.mkdir()
    with secured.running(tmp_path / "secured", jars) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.inner)
        broker.logins(admin)
        given = {"source": "life-in", "output": "life-out", "name": "life"}
        for kind, names in LEAST.items():
            for name, rights in names.items():
                for right in rights:
                    secured.grant(admin, secured.USERS[listener], right, kind, name.format(**given), prefix=True)
        admin.close()
        options = broker.written("options", broker.options(listener))
        places = {"REWIND_PIPELINES": str(folder), "REWIND_KAFKA_OPTIONS_FILE": str(options)}
        settings = make_settings(broker.addresses[listener], **places)
        shop = Workshop(settings, "life", 2, outside=broker.inner, **({"like": like} if like else {}))
        try:
            counts = lived((Counting if like else Life)(shop, ()))
            leaks = [*in_files(settings.home), *in_files(tmp_path / "events"), *in_processes(settings)]
        finally:
            database.upgrade(settings.registry_url)
            supervise.stop_all(settings, timeout=20)
    figure(f"life_{listener}{'_with_state' if like else ''}", counts)
    assert any((tmp_path / "events").rglob("*")), "what Spark logs was looked through"
    assert leaks == []


def test_shows_2_each_least_right_is_missed_in_each_step(
    figure: Figure, tmp_path: Path, jars: Path, make_settings: Callable[..., Settings]
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    with secured.running(tmp_path / "secured", jars) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.inner)
        broker.logins(admin)
        settings = make_settings(broker.inner, REWIND_PIPELINES=str(folder))
        life = Life(Workshop(settings, "life", 2, outside=broker.inner), ())
        try:
            life.begin(RECORDS)
            watched = Watched(life, broker, admin)
            asked = json.dumps({"dry_run": False, "same_code": True})
            refused = {"plan": watched.step("plan", "--rewind-id", REWIND, "--pipeline", "life", "--request", asked)}
            life.step("spin_up", "--rewind-id", REWIND)
            refused["backfill"] = watched.step("backfill", "--rewind-id", REWIND)
            job = life.candidate()
            life.shop.start(job)
            life.shop.caught_up(job)
            refused["validate"] = watched.step("validate", "--rewind-id", REWIND)
            life.shop.approve(REWIND)
            refused["cut_over"] = watched.step("cut_over", "--rewind-id", REWIND)
            life.roll_back()
            with life.shop.registry() as connection:
                generations.set_grace(connection, job, now())
            refused["collect_garbage"] = watched.step("collect_garbage")
            assert life.left_of(job) == NOTHING_LEFT
        finally:
            supervise.stop_all(settings, timeout=20)
            admin.close()
    figure("rights_missed_in_steps", refused)


@pytest.mark.parametrize("database_of", ["SQLite", "PostgreSQL"])
def test_shows_5_two_supervisors_and_a_page_on_hosts_of_their_own(
    figure: Figure, tmp_path: Path, make_settings: Callable[..., Settings], database_of: str
) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/registry.db"
        if database_of == "PostgreSQL":
            url = postgres.another(stack.enter_context(postgres.server()), "rewind")
        settings = make_settings(REWIND_REGISTRY_URL=url)
        database.upgrade(settings.registry_url)
        with database.writing(settings.registry_url) as connection:
            streams.wish(connection, OWNER, streams.GENERATION, streams.RUN)
        fleet = Fleet(settings, tmp_path, 22)
        stack.callback(fleet.end)
        did: Counter[str] = Counter()
        while fleet.looks < LOOKS:
            fleet.look(fleet.draw.choice("ab"))
            if "alive" in fleet.views().values():
                did[fleet.something_happens()] += 1
        writers = fleet.writers()
        assert all(earlier[1] < later[0] for earlier, later in itertools.pairwise(writers)), "two drivers wrote"
        assert [token for _, _, token in writers] == sorted({token for _, _, token in writers})
        assert fleet.slowest <= 60
    figure(f"hosts_{database_of}_happened", dict(did))
    figure(f"hosts_{database_of}_looks_starts_deaths", [fleet.looks, fleet.starts, fleet.deaths])
    figure(f"hosts_{database_of}_slowest_dead_shown_s", round(fleet.slowest))


IN_USER, IN_QUERY, TOKEN = "planted-in-user", "planted-in-query", "planted-read-token-of-forty-characters-000"


def test_shows_4_no_secret_of_a_stack_is_found(figure: Figure, tmp_path: Path, jars: Path) -> None:
    """A life on a real scheduler, with a plan that is refused, and a registry that is away."""
    token = tmp_path / "read-token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with postgres.server() as url:
        # The server asks nobody for a password, so that both of Airflow's and of ours may be planted.
        of_airflow = make_url(postgres.another(url, "airflow")).set(password=IN_USER)
        of_registry = make_url(postgres.another(url, "rewind")).update_query_dict({"password": IN_QUERY})
        chosen = {
            "REWIND_AIRFLOW_DATABASE": of_airflow.render_as_string(hide_password=False),
            "REWIND_REGISTRY_URL": of_registry.render_as_string(hide_password=False),
            "REWIND_READ_TOKEN_FILE": str(token),
            "AIRFLOW_CONN_KAFKA": PLANTED["AIRFLOW_CONN_KAFKA"],
            "SPARK_CONF_DIR": str(with_event_log(tmp_path)),
        }
        stage = Stage(tmp_path / "home", jars, "told", 2, environment=chosen)
        try:
            stage.shop.produce(*(visit(n) for n in range(100)))
            stage.deploy()
            refused, _ = stage.begin(**{"from": '{"told-in":{"0":999}}'})
            assert stage.ended(stage.rewind_dag, refused) == "failed"
            stage.succeeded(stage.rewind_dag, stage.start(stage.rewind_dag, {"same_code": True}))
            keys = configparser.ConfigParser(interpolation=None)
            keys.read(stage.home / "airflow" / "airflow.cfg")
            secret = {
                "Airflow's Fernet key": keys["core"]["fernet_key"],
                "Airflow's session key": keys["api"]["secret_key"],
                "Airflow's JWT secret": keys["api_auth"]["jwt_secret"],
                "a database's password in the user part": IN_USER,
                "a database's password in the query": IN_QUERY,
                "a connection": "planted-connection",
                "the read token": TOKEN,
            }
            found = {
                place: sorted(name for name, text in secret.items() if text.encode() in body)
                for place, body in looked_at(stage, tmp_path, (of_airflow, of_registry))
            }
        finally:
            stage.down()
    figure("places_looked_at_for_secrets", len(found))
    figure("secrets_of_a_stack", len(secret))
    keys_of_airflow = sorted(name for name in secret if name.startswith("Airflow's"))
    in_user, in_query = sorted(name for name in secret if name.startswith("a database's"))[::-1]
    # The stack's own files of settings. What a driver logs in to the registry by is all that it gets.
    holds = {
        "airflow.cfg": sorted([*keys_of_airflow, in_user]),
        "keys.json": keys_of_airflow,
        "stack.json": sorted([in_user, in_query]),
    }
    of_drivers = [place for place in found if place.startswith("environment of")]
    holds |= {place: [in_query] for place in of_drivers}
    assert len(of_drivers) == 2
    assert {place: names for place, names in found.items() if names} == holds


def looked_at(stage: Stage, folder: Path, databases: Sequence[URL]) -> Iterator[tuple[str, bytes]]:
    """Yield each place where a secret could be, and what stands there.

    Files of the stack and of Spark's events; all that Airflow and the registry keep, XComs and rendered templates among
    it; the arguments of all processes, and the environments of drivers.
    """
    for path in (*stage.home.rglob("*"), *(folder / "events").rglob("*")):
        if path.is_file() and not path.is_symlink():
            # What only the stack's owner reads.
            private = path.parent.name in ("airflow", "stack") and path.stat().st_mode & 0o777 == 0o600
            own = path.name if private else str(path)
            yield own, path.read_bytes()
    for url in databases:
        plain = url.set(drivername="postgresql", password=None, query={}).render_as_string()
        dumped = subprocess.run(["pg_dump", plain], capture_output=True, check=True).stdout
        assert b"COPY public." in dumped
        yield f"database {url.database}", dumped
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield f"arguments of {path.name}", (path / "cmdline").read_bytes()
    for owner in (stage.live(), stage.shop.mirror):
        for pid in living_drivers(owner):
            yield f"environment of {owner}, {pid}", Path(f"/proc/{pid}/environ").read_bytes()
    away = databases[1].set(port=1, password=IN_USER).render_as_string(hide_password=False)
    settings = stage.shop.settings.environment() | {"REWIND_REGISTRY_URL": away}
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include"), **settings}
    command = [sys.executable, "-m", "rewind", "generations", "told"]
    told = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert b"registry postgresql+psycopg://" in told.stderr, told
    yield "message of a registry that is away", told.stdout + told.stderr


TEAM = {
    "COMPOSE_PROFILES": "",
    "AIRFLOW_FERNET_KEY": "fernet",
    "AIRFLOW_JWT_SECRET": "jwt",
    "AIRFLOW_SECRET_KEY": "session",
    "AIRFLOW_ADMIN_PASSWORD": "of admin",
    "AIRFLOW_VIEWER_PASSWORD": "of viewer",
    "AIRFLOW__API__BASE_URL": "https://airflow.example.com",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg://airflow:p%40w@db.example.com/airflow?sslmode=verify-full",
    "AIRFLOW__METRICS__OTEL_ON": "True",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    "REWIND_DRIVER_ENVIRONMENT": "AWS_*",
    "REWIND_KAFKA_BOOTSTRAP": "k1.example.com:9093,k2.example.com:9093",
    "REWIND_KAFKA_OPTIONS_FILE": "/rewind/kafka-options.json",
    "REWIND_MIRROR_RETAIN_HOURS": "24",
    "REWIND_NOTIFIER": "a.b.Notifier",
    "REWIND_NOTIFIER_ARGS": '{"slack_conn_id": "team"}',
    "REWIND_READ_TOKEN_FILE": "/rewind/read-token",
    "REWIND_REGISTRY_URL": "postgresql+psycopg://rewind@db.example.com/rewind?password=a%26b&sslmode=verify-full",
    "REWIND_SPARK_MASTER": "spark://spark.example.com:7077",
}
"""What a team writes into `.env` that has its own Kafka, Spark and PostgreSQL."""
UNDER = {
    "AIRFLOW_FERNET_KEY": "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW_JWT_SECRET": "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW_SECRET_KEY": "AIRFLOW__API__SECRET_KEY",
}
"""By which name a setting arrives, where that is another one."""
HERE_ALONE = ("COMPOSE_PROFILES", "POSTGRES_PASSWORD", "KAFKA_CLUSTER_ID")
"""Settings of what runs here where a team has nothing of its own."""


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mapping[str, str]], dict[str, Any]]:
    """What Compose's own loader makes of the deployment and a `.env`: `compose({"COMPOSE_PROFILES": ""})`."""
    folder = tmp_path_factory.mktemp("compose")
    loader = folder / "loader"
    assert shutil.which("go"), "Compose's loader is a library of Go: install Go"
    source = PROJECT / "tests" / "support" / "compose_loader"
    subprocess.run(["go", "build", "-o", str(loader), "."], cwd=source, check=True)
    shutil.copy(PROJECT / "docker-compose.yaml", folder)

    def load(chosen: Mapping[str, str]) -> dict[str, Any]:
        (folder / ".env").write_text("".join(f"{name}='{value}'\n" for name, value in chosen.items()))
        done = subprocess.run([str(loader), str(folder)], capture_output=True, text=True, check=False, env={})
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return load


def test_shows_6_a_team_with_its_own_parts(figure: Figure, compose: Callable[[Mapping[str, str]], Any]) -> None:
    services = compose(TEAM)["services"]
    assert sorted(services) == ["api-server", "dag-processor", "init", "scheduler", "spark-history", "triggerer"]
    of_airflow = {name: body["environment"] for name, body in services.items() if name != "spark-history"}
    arrived = 0
    for name, value in TEAM.items():
        if name in HERE_ALONE:
            continue
        where = ["init"] if name.endswith(("ADMIN_PASSWORD", "VIEWER_PASSWORD")) else list(of_airflow)
        found = {service for service in of_airflow if of_airflow[service].get(UNDER.get(name, name)) == value}
        assert found == set(where), name
        arrived += 1
    connection = json.loads(of_airflow["scheduler"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection["host"] == TEAM["REWIND_SPARK_MASTER"]
    named = set(re.findall(r"^#?([A-Z][A-Z_]+)=", (PROJECT / ".env.example").read_text(), re.MULTILINE))
    assert named == {*TEAM, *HERE_ALONE}, "every setting that is documented arrives"
    figure("compose_settings_that_arrive", arrived)


def test_shows_6_what_runs_here_and_what_is_missing(compose: Callable[[Mapping[str, str]], Any]) -> None:
    needed = {name: value for name, value in TEAM.items() if name in UNDER or name.endswith("_PASSWORD")}
    here = {"COMPOSE_PROFILES": "kafka,postgres,spark", "POSTGRES_PASSWORD": "pw", "KAFKA_CLUSTER_ID": "id"}
    services = compose(needed | here)["services"]
    assert {"kafka", "kafka-ui", "postgres", "spark-master", "spark-worker-1", "spark-worker-2"} <= set(services)
    made = services["scheduler"]["environment"]
    assert made["REWIND_REGISTRY_URL"] == "postgresql+psycopg://rewind:pw@postgres/rewind"
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == "pw"
    assert services["kafka"]["environment"]["CLUSTER_ID"] == "id"
    for name in needed:
        with pytest.raises(AssertionError, match=f"{name} is missing a value: set it in .env"):
            compose({other: value for other, value in (needed | here).items() if other != name})


def with_event_log(folder: Path) -> Path:
    """Return a folder of Spark's configuration that has each application write its events below a folder."""
    for name in ("conf", "events"):
        (folder / name).mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    settings["spark.eventLog.dir"] = f"file:{folder}/events"
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text(text)
    return folder / "conf"


def secrets() -> list[bytes]:
    """Return each secret as it is, and as a JSON text and the line of a login hold it."""
    plain = [value for text in PLANTED.values() for value in re.findall(r"planted-\w+", text)] + list(OF_LOGINS)
    return [form.encode() for value in plain for form in {value, json.dumps(value)[1:-1]}]


def in_files(folder: Path) -> list[tuple[str, bytes]]:
    """Return which files below a folder hold which secret: registry, logs, evidence, bundles, checkpoints, tables."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [(str(path), secret) for path in files for secret in secrets() if secret in path.read_bytes()]


def in_processes(settings: Settings) -> list[tuple[str, bytes]]:
    """Return which drivers hold which secret in their environment or arguments."""
    with database.writing(settings.registry_url) as connection:
        held = [leases.read(connection, stream.owner) for stream in streams.all_of(connection)]
    pids = [process.pid for lease in held if lease and lease.holder for process in lease.holder.processes]
    assert pids, "live runs"
    places = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("environ", "cmdline")]
    return [(str(place), secret) for place in places for secret in secrets() if secret in place.read_bytes()]


def lived(life: Life) -> dict[str, int]:
    """Deploy, rewind, switch, roll back and collect; return the verdict's rows by class."""
    life.begin(RECORDS)
    new = life.rewind()
    counts = life.shop.verdict(REWIND).counts
    assert counts["rows"] == counts["equal"] > 0
    life.roll_back()
    assert life.states() == {"life-g1": "live", new: "standby"}
    life.collect(new)
    assert life.left_of(new) == NOTHING_LEFT
    assert life.epochs() == [1, 2, 3]
    return {name: n for name, n in counts.items() if n}
