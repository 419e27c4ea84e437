"""One spark-submit as a value."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rewind.core.errors import RefusedError
from rewind.core.settings import from_environment
from rewind.runtime.drivers import jvm, submit
from rewind.runtime.drivers.bundle import Bundle

SECRET = "s3cr3t"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(jvm, "java_home", lambda: Path("/java"))
    jars = tmp_path / "jars"
    (jars / "spark").mkdir(parents=True)
    for name in ("b.jar", "a.jar"):
        (jars / "spark" / name).write_bytes(b"")
    (tmp_path / "options.json").write_text(f'{{"sasl_plain_password": "{SECRET}"}}')
    return from_environment(
        {
            "REWIND_HOME": str(tmp_path / "home"),
            "REWIND_KAFKA_BOOTSTRAP": "k:9092",
            "REWIND_JARS": str(jars),
            "REWIND_REGISTRY_URL": f"postgresql://ann:{SECRET}@db/rewind",
            "REWIND_KAFKA_OPTIONS_FILE": str(tmp_path / "options.json"),
            "REWIND_DRIVER_MEMORY": "2g",
        }
    )


BUNDLE = Bundle(Path("/b"), "h", {})


def made(settings, job="stream", **changes):
    return submit.make(settings, BUNDLE, job, ["--job-id", "visits-g1", 5], name="visits-g1.3", **changes)


def test_application_and_packages_are_those_of_the_bundle(settings):
    found = made(settings)
    assert (found.application, found.py_files) == (Path("/b/main/stream.py"), Path("/b/rewind.zip"))
    assert (found.name, found.master, found.arguments) == ("visits-g1.3", "local[2]", ["--job-id", "visits-g1", "5"])


def test_the_command_line(settings):
    line = submit.command(made(settings))

    assert Path(line[0]) == Path(sys.executable).parent / "spark-submit"
    assert line[1:7] == ["--master", "local[2]", "--name", "visits-g1.3", "--py-files", "/b/rewind.zip"]
    assert line[-4:] == ["/b/main/stream.py", "--job-id", "visits-g1", "5"]
    class_path = f"{settings.jars}/spark/a.jar:{settings.jars}/spark/b.jar"
    assert line[7:9] == ["--driver-class-path", class_path]
    assert f"spark.executor.extraClassPath={class_path}" in line
    assert "spark.driver.memory=2g" in line


def test_no_checkout_on_the_path_wins_over_the_bundle(settings, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/checkout/include")
    assert submit.environment(made(settings))["PYTHONPATH"] == ""


def test_no_secret_is_in_arguments_or_conf(settings):
    found = made(settings)
    assert SECRET not in " ".join(submit.command(found))
    assert SECRET not in str(found.conf)
    assert SECRET in found.environment["REWIND_REGISTRY_URL"], "it travels by environment"
    assert SECRET not in str({k: v for k, v in found.environment.items() if k != "REWIND_REGISTRY_URL"})


def test_the_driver_gets_settings_python_and_java(settings, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    found = submit.environment(made(settings, environment={"MORE": "1"}))
    assert from_environment(found) == settings
    assert (found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"]) == (sys.executable, sys.executable)
    assert (found["JAVA_HOME"], found["SPARK_CONF_DIR"], found["MORE"]) == ("/java", "/conf", "1")


AIRFLOWS = {
    "AIRFLOW__API_AUTH__JWT_SECRET": "s-1",
    "AIRFLOW__CORE__FERNET_KEY": "s-2",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:s-3@db/airflow",
    "AIRFLOW_CONN_KAFKA": '{"password": "s-4"}',
    "AIRFLOW_VAR_TOKEN": "s-5",
    "REWIND_AIRFLOW_PASSWORD": "s-6",
    "AWS_SECRET_ACCESS_KEY": "s-7",
    "DATABASE_URL": "s-8",
}


def test_the_driver_gets_nothing_of_airflows(settings, monkeypatch):
    for key, value in AIRFLOWS.items():
        monkeypatch.setenv(key, value)
    found = submit.environment(made(settings))
    assert not AIRFLOWS.keys() & found.keys()
    assert not [value for value in found.values() if "s-" in value]


def test_what_else_a_driver_needs_is_named(settings, monkeypatch):
    for key, value in AIRFLOWS.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("REWIND_DRIVER_ENVIRONMENT", "AWS_*, DATABASE_URL")
    found = submit.environment(made(settings))
    assert sorted(AIRFLOWS.keys() & found.keys()) == ["AWS_SECRET_ACCESS_KEY", "DATABASE_URL"]


@pytest.mark.parametrize(
    ("master", "address"), [("local[2]", "127.0.0.1"), ("spark://host:7077", None), ("yarn", None)]
)
def test_only_a_local_driver_hides_on_loopback(settings, master, address):
    assert made(replace(settings, spark_master=master)).environment.get("SPARK_LOCAL_IP") == address


def test_what_is_chosen_wins_over_the_usual(settings):
    found = made(settings, conf={"spark.log.level": "INFO", "x": "y"}).conf
    assert (found["spark.log.level"], found["x"], found["spark.ui.enabled"]) == ("INFO", "y", "false")


@pytest.mark.parametrize(
    ("job", "master", "records", "short"),
    [
        ("spin_up", "local[2]", None, True),
        ("spin_up", "local[2]", 10**9, True),
        ("deploy", "yarn", None, True),
        ("stream", "local[2]", None, True),
        ("stream", "yarn", None, False),
        ("backfill", "local[2]", None, False),
        ("backfill", "local[2]", 500_000, True),
        ("backfill", "local[2]", 500_001, False),
        ("backfill", "yarn", 1, False),
    ],
)
def test_light_jobs_do_without_the_second_compiler(settings, job, master, records, short):
    found = made(replace(settings, spark_master=master), job, records=records)
    options = found.conf["spark.driver.extraJavaOptions"]
    assert ("-XX:TieredStopAtLevel=1" in options) is short


def test_the_archive_is_used_where_there_is_one(settings):
    assert "SharedArchiveFile" not in jvm.driver_java_options(settings.jars, short=False)
    (settings.jars / "rewind.jsa").write_bytes(b"")
    assert jvm.driver_java_options(settings.jars, short=False) == f'"-XX:SharedArchiveFile={settings.jars}/rewind.jsa"'


def test_missing_jars_are_named_with_their_cure(settings):
    for jar in (settings.jars / "spark").iterdir():
        jar.unlink()
    with pytest.raises(RefusedError) as raised:
        made(settings)
    assert (raised.value.field, raised.value.cure) == ("REWIND_JARS", "Run `make setup`")


def fake_java(home, listing):
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\nprintf '{listing}'\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("listing", "usable"),
    [
        ("java.base@17.0.1\\njdk.incubator.vector@17.0.1\\n", True),
        ("java.base@21\\njdk.incubator.vector@21\\n", True),
        ("java.base@22-ea\\njdk.incubator.vector@22-ea\\n", True),
        ("java.base@11.0.2\\njdk.incubator.vector@11\\n", False),
        ("java.base@17.0.1\\n", False),
        ("", False),
    ],
)
def test_a_java_is_usable_when_it_is_new_enough_and_whole(tmp_path, listing, usable):
    assert jvm.is_usable(fake_java(tmp_path / "java", listing)) is usable


def test_a_missing_java_is_named_with_its_cure(tmp_path, monkeypatch):
    assert not jvm.is_usable(tmp_path)
    monkeypatch.setattr(jvm, "find_java", lambda: None)
    with pytest.raises(RefusedError) as raised:
        jvm.java_home()
    assert (raised.value.field, "Install openjdk-17" in raised.value.cure) == ("JAVA_HOME", True)
