"""The team's deployment without an engine: by the Compose schema, and held against what the code reads."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from provision import locks

from rewind.core.settings import ENVIRONMENT_KEYS, from_environment
from rewind.local import airflow, airflow_config
from tests.support.workshop import PROJECT, wait_for

COMPOSE = PROJECT / "docker-compose.yaml"
DOCKERFILE = (PROJECT / "Dockerfile").read_text()
SERVICES = yaml.safe_load(COMPOSE.read_text())["services"]
AIRFLOW = ("init", *airflow.ARGUMENTS)
SPARK = ("spark-master", "spark-worker-1", "spark-worker-2", "spark-history")
WRITTEN = SERVICES["scheduler"]["environment"]
CHOICE = re.compile(r"\$\{\w+:-((?:[^{}]|\$\{[^}]*\})*)\}")
ENVIRONMENT = {name: CHOICE.sub(r"\1", value) for name, value in WRITTEN.items()}
"""What it is where nothing is chosen in `.env`."""
LOCAL_ONLY = {
    # One machine has one host, and its port is chosen.
    ("api", "host"),
    # One person has one login. A team's users and roles are made by init.
    ("core", "simple_auth_manager_passwords_file"),
    ("core", "simple_auth_manager_users"),
}
OTHER_VALUE = {
    ("api", "base_url"): "the name that a browser uses",
    ("api", "port"): "chosen when the local stack starts",
    ("api", "secret_key"): "a secret",
    ("api_auth", "jwt_secret"): "a secret",
    ("core", "dags_folder"): "a place in the image",
    ("core", "execution_api_server_url"): "the service's name",
    ("core", "fernet_key"): "a secret",
    ("core", "plugins_folder"): "a place in the image",
    ("database", "sql_alchemy_conn"): "PostgreSQL",
    ("logging", "base_log_folder"): "a place on the volume",
}
TEAM_ONLY = {
    ("core", "auth_manager"): "users and roles of a team; one person needs none",
    ("database", "sql_alchemy_conn_async"): "the same driver for both; SQLite needs none",
    ("metrics", "otel_on"): "chosen in .env; on one machine in the environment of `make up`",
    ("scheduler", "enable_health_check"): "asked by the health check",
}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The settings of the local Airflow, by section and key."""
    home = tmp_path_factory.mktemp("airflow")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(airflow_config.render(home, "127.0.0.1", 8080, PROJECT / "dags", PROJECT / "plugins"))
    return {(section, key): parsed[section][key] for section in parsed.sections() for key in parsed[section]}


def team():
    """The settings of the team's Airflow, by section and key."""
    names = (name.removeprefix("AIRFLOW__").lower().split("__") for name in ENVIRONMENT if name.startswith("AIRFLOW__"))
    return {(section, key): ENVIRONMENT[f"AIRFLOW__{section}__{key}".upper()] for section, key in names}


def copied():
    """What the image holds below its working directory, by what it was copied from."""
    return [line.split()[2:] for line in DOCKERFILE.splitlines() if line.startswith("COPY --chown=rewind")]


def test_it_is_a_compose_file():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_airflow_is_told_the_same_as_on_one_machine_but_for_what_is_listed(local):
    there = team()
    assert local.keys() - there.keys() == LOCAL_ONLY
    assert there.keys() - local.keys() == TEAM_ONLY.keys()
    differing = {name for name in local.keys() & there.keys() if local[name] != there[name]}
    assert differing <= OTHER_VALUE.keys()
    assert not OTHER_VALUE.keys() - local.keys()


def test_every_setting_of_ours_is_one_that_the_code_reads_and_the_required_ones_are_there():
    in_image = dict(re.findall(r"(REWIND_\w+)=(\S+)", DOCKERFILE.replace("REWIND_HOME=/tmp/setup", "")))
    given = {name: value for name, value in ENVIRONMENT.items() if name.startswith("REWIND_")} | in_image
    of_tasks = {name for name in airflow.OF_TASKS if name.startswith("REWIND_")}
    read = {*ENVIRONMENT_KEYS, *airflow.OF_DAGS, *of_tasks, "REWIND_READ_TOKEN_FILE"}
    assert given.keys() == read
    settings = from_environment(given)
    volume = {
        service: [mount.partition(":")[2] for mount in SERVICES[service]["volumes"]] for service in AIRFLOW + SPARK
    }
    assert {str(settings.home)} == {place for places in volume.values() for place in places}
    assert settings.data.is_relative_to(settings.home), "drivers and workers share it"
    assert settings.spark_master in str(SERVICES["spark-worker-1"]["command"])
    assert settings.spark_master in ENVIRONMENT["AIRFLOW_CONN_SPARK_DEFAULT"]
    assert settings.bootstrap in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


DATABASE = "postgresql+psycopg://rewind:${POSTGRES_PASSWORD:-}@postgres"
CHOSEN = {
    "AIRFLOW__API__BASE_URL": "http://localhost:8080",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"{DATABASE}/airflow",
    "AIRFLOW__METRICS__OTEL_ON": "False",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "",
    "REWIND_DRIVER_ENVIRONMENT": "",
    "REWIND_KAFKA_BOOTSTRAP": "kafka:9092",
    "REWIND_KAFKA_OPTIONS_FILE": "",
    "REWIND_MIRROR_RETAIN_HOURS": "",
    "REWIND_NIGHTLY_ZONE": "UTC",
    "REWIND_NOTIFIER": "",
    "REWIND_NOTIFIER_ARGS": "",
    "REWIND_READ_TOKEN_FILE": "",
    "REWIND_REGISTRY_URL": f"{DATABASE}/rewind",
    "REWIND_SPARK_HISTORY": "",
    "REWIND_SPARK_MASTER": "spark://spark-master:7077",
}


def test_what_is_documented_can_be_chosen_in_env():
    assert {name: value for name, value in ENVIRONMENT.items() if WRITTEN[name] == f"${{{name}:-{value}}}"} == CHOSEN
    host = '"host": "${REWIND_SPARK_MASTER:-spark://spark-master:7077}"'
    assert host in WRITTEN["AIRFLOW_CONN_SPARK_DEFAULT"]


def test_the_registry_is_a_database_of_its_own():
    urls = (ENVIRONMENT["REWIND_REGISTRY_URL"], ENVIRONMENT["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    names = [url.rpartition("/")[2] for url in urls]
    made = re.findall(r"CREATE DATABASE (\w+);", (PROJECT / "deploy" / "postgres" / "registry.sql").read_text())
    assert names == [*made, SERVICES["postgres"]["environment"]["POSTGRES_DB"]]
    assert ENVIRONMENT["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] == urls[1]


def test_there_is_no_default_secret():
    secret = re.compile("PASSWORD|SECRET|FERNET|CONN$|CONN_ASYNC|REGISTRY_URL")
    for service, body in SERVICES.items():
        for name, value in body.get("environment", {}).items():
            if secret.search(name):
                asked = re.search(r"\$\{\w+:\?set it in \.env\}", value)
                # Whoever has a PostgreSQL needs none; the image of the one that runs here refuses an empty one.
                of_postgres = "${POSTGRES_PASSWORD:-}" in value
                assert asked or of_postgres, f"{service}: {name}"
    asked = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    example = dict(
        line.split("=", 1) for line in (PROJECT / ".env.example").read_text().splitlines() if line[:1].isupper()
    )
    profiles = {profile for body in SERVICES.values() for profile in body.get("profiles", ())}
    assert set(example.pop("COMPOSE_PROFILES").split(",")) == profiles, "all of it runs here unless one says otherwise"
    assert example == dict.fromkeys((*asked, "KAFKA_CLUSTER_ID", "POSTGRES_PASSWORD"), "")


def test_what_a_team_has_itself_need_not_run_here():
    for service, body in SERVICES.items():
        for name, needed in body.get("depends_on", {}).items():
            within = set(SERVICES[name].get("profiles", ())) <= set(body.get("profiles", ()))
            assert needed.get("required", True) is within, f"{service} needs {name}"


def test_every_service_is_watched_and_bounded():
    for name, body in SERVICES.items():
        assert "mem_limit" in body, name
        assert (body["restart"], "healthcheck" in body) == (
            ("no", False) if name == "init" else ("unless-stopped", True)
        )
        image = body["image"]
        assert image == "rewind:${REWIND_VERSION:-local}" or re.fullmatch(r"[\w/-]+:v?\d+\.\d+[\w.-]*", image), name


def test_a_health_check_asks_a_port_that_its_service_listens_on():
    listens = {
        "api-server": ENVIRONMENT["AIRFLOW__API__PORT"],
        # Airflow's and Spark's own, which nothing here changes.
        "scheduler": "8974",
        "spark-worker-1": "8081",
        "spark-worker-2": "8081",
        "spark-history": "18080",
        "spark-master": SERVICES["spark-master"]["command"][-1],
        "kafka-ui": "8080",
        "kafka": re.findall(r"INTERNAL://:(\d+)", SERVICES["kafka"]["environment"]["KAFKA_LISTENERS"])[0],
    }
    asked = {
        name: re.findall(r"localhost:(\d+)", str(body["healthcheck"]))
        for name, body in SERVICES.items()
        if "healthcheck" in body
    }
    assert {name: ports[0] for name, ports in asked.items() if ports} == listens
    for name, body in SERVICES.items():
        for mapping in body.get("ports", []):
            address, _, inner = mapping.split(":")
            assert address == "127.0.0.1", f"{name}: only a proxy that the team chooses opens it to others"
            assert inner in (listens[name], "19092")


def test_each_host_that_proves_deaths_has_a_name_that_outlives_its_containers():
    names = [SERVICES[service].get("hostname") for service in (*AIRFLOW, *SPARK)]
    assert None not in names
    assert len(set(names)) == len(names)
    assert all(SERVICES[service]["init"] for service in AIRFLOW), "drivers in sessions of their own have to be reaped"


def test_workers_reach_none_of_our_code():
    ours = {f"/opt/rewind/{target}" for *_, target in copied() if target in ("include", "jobs", "dags")}
    for name in ("spark-worker-1", "spark-worker-2"):
        assert set(SERVICES[name]["tmpfs"]) == ours
        assert SERVICES[name]["environment"]["PYTHONPATH"] == ""


def test_volumes_and_files_are_there():
    body = yaml.safe_load(COMPOSE.read_text())
    mounted = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    assert {name for name in mounted if not name.startswith(".")} == body["volumes"].keys()
    assert all((PROJECT / name).exists() for name in mounted if name.startswith("."))
    for *sources, _ in copied():
        assert all((PROJECT / source).exists() for source in sources), sources
    assert ("plugins" in {target for *_, target in copied()}) == any((PROJECT / "plugins").glob("*.py"))


def test_the_build_sees_what_it_copies_and_no_secret():
    allowed = set(re.findall(r"^!(.+)$", (PROJECT / ".dockerignore").read_text(), re.MULTILINE))
    assert {source.rstrip("/").split("/")[0] for *sources, _ in copied() for source in sources} == allowed
    assert ".env" in (PROJECT / ".gitignore").read_text().splitlines()


def test_the_image_is_what_the_locks_say():
    python = re.search(r"FROM python:(\d+\.\d+)\.", DOCKERFILE)
    assert python is not None
    assert python.group(1) == locks.OLDEST_PYTHON
    kafka = re.search(r'name="kafka_2.13" rev="([\d.]+)"', (PROJECT / "jars.xml").read_text())
    assert kafka is not None
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka.group(1)}"
    assert "python scripts/setup.py --runtime" in DOCKERFILE


def test_airflow_runs_what_the_local_stack_runs():
    for name, arguments in airflow.ARGUMENTS.items():
        command = SERVICES[name]["command"]
        text = (PROJECT / command[1]).read_text() if command[0] == "sh" else " ".join(command)
        assert " ".join(("airflow", *arguments)) in text


def test_airflow_knows_each_of_its_settings():
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    known = yaml.safe_load((Path(spec.origin).parent / "config_templates" / "config.yml").read_text())
    assert not [(section, key) for section, key in team() if key not in known[section]["options"]]


def test_a_second_rewind_of_a_pipeline_finds_room_on_the_workers():
    conf = dict(
        line.split(maxsplit=1)
        for line in (PROJECT / "deploy" / "spark" / "spark-defaults.conf").read_text().splitlines()
        if line[:1] != "#"
    )
    cores, memory = SERVICES["spark-worker-1"]["command"][3], SERVICES["spark-worker-1"]["command"][5]
    per_worker = min(int(cores) // int(conf["spark.executor.cores"]), int(memory[:-1]) // int(gigabytes(conf)))
    executors = int(conf["spark.cores.max"]) // int(conf["spark.executor.cores"])
    # Mirror, live, standby, candidate, a step, and what collects garbage: one that found no room would wait for ever.
    assert 2 * per_worker // executors >= 6


def gigabytes(conf):
    """The memory of an executor."""
    return conf["spark.executor.memory"].removesuffix("g")


def program(folder, name, text):
    """Put a program of a test's own before those of the path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def own_path(folder):
    return {"PATH": f"{folder}:{os.environ['PATH']}", "TOLD": str(folder / "told")}


def test_the_scheduler_comes_back_and_at_the_end_goes_before_the_drivers(tmp_path):
    told = tmp_path / "told"
    ends = "trap 'echo scheduler ended >> \"$TOLD\"; exit 0' TERM"
    waits = "while :; do sleep 0.05; done"
    # Crashes the first time, runs the second.
    program(
        tmp_path,
        "airflow",
        f'{ends}\necho "$*" >> "$TOLD"\n[ "$(wc -l < "$TOLD")" -gt 1 ] || exit 1\necho up >> "$TOLD"\n{waits}',
    )
    program(tmp_path, "python", 'case "$2" in *supervise.stop_all*) echo drivers ended >> "$TOLD";; esac')
    _, path = SERVICES["scheduler"]["command"]
    container = subprocess.Popen(["sh", str(PROJECT / path)], env=own_path(tmp_path))
    try:
        wait_for("the second scheduler", lambda: told.exists() and "up" in told.read_text(), 20)
        container.terminate()
        assert container.wait(20) == 0
    finally:
        container.kill()
    started = "scheduler --skip-serve-logs"
    assert told.read_text().splitlines() == [started, started, "up", "scheduler ended", "drivers ended"]
    assert SERVICES["scheduler"]["stop_grace_period"] == "120s", "30 s for the scheduler and 50 s for the drivers"
