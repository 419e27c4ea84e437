from __future__ import annotations

import configparser
import stat
from pathlib import Path

import pytest

from rewind.core.errors import RefusedError
from rewind.local import airflow_config


def parsed(home: Path, port: int = 8080) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read_string(airflow_config.render(home, "127.0.0.1", port, home / "dags", home / "50%"))
    return config


def test_keys_and_passwords_are_kept_and_private(tmp_path: Path) -> None:
    first, passwords = parsed(tmp_path), airflow_config.passwords(tmp_path)

    assert parsed(tmp_path)["api_auth"]["jwt_secret"] == first["api_auth"]["jwt_secret"]
    assert airflow_config.passwords(tmp_path) == passwords
    assert set(passwords) == {"admin", "viewer"}
    for name in ("keys.json", "passwords.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_two_homes_have_different_secrets(tmp_path: Path) -> None:
    assert airflow_config.passwords(tmp_path / "a") != airflow_config.passwords(tmp_path / "b")


def test_tasks_and_page_use_the_chosen_port(tmp_path: Path) -> None:
    config = parsed(tmp_path, port=1234)

    assert config["api"]["base_url"] == "http://127.0.0.1:1234"
    assert config["core"]["execution_api_server_url"] == "http://127.0.0.1:1234/execution/"


def test_a_percent_sign_in_a_path_survives(tmp_path: Path) -> None:
    assert parsed(tmp_path)["core"]["plugins_folder"] == str(tmp_path / "50%")


def test_another_database_serves_both_kinds_of_calls(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:50%25@host/airflow"
    config = configparser.ConfigParser()
    config.read_string(airflow_config.render(tmp_path, "127.0.0.1", 8080, tmp_path, tmp_path, url))

    assert config["database"]["sql_alchemy_conn"] == url
    assert config["database"]["sql_alchemy_conn_async"] == url
    assert parsed(tmp_path)["database"]["sql_alchemy_conn"] == f"sqlite:///{tmp_path}/airflow.db?timeout=5"


@pytest.mark.parametrize("url", ["postgresql://host/airflow", "mysql://host/airflow"])
def test_a_database_without_a_driver_is_refused(url: str) -> None:
    with pytest.raises(RefusedError, match=r"^REWIND_AIRFLOW_DATABASE: .*Give postgresql\+psycopg://"):
        airflow_config.check_database(url)


def test_sqlite_is_what_no_choice_means() -> None:
    assert airflow_config.check_database("") == ""
