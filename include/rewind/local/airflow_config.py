"""What the local Airflow is told: the text of `airflow.cfg`, and the secrets it needs."""

from __future__ import annotations

import base64
import configparser
import io
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from rewind.core.errors import RefusedError

DATABASE_FIELD = "REWIND_AIRFLOW_DATABASE"
USERS: Mapping[str, str] = {"admin": "admin", "viewer": "viewer"}
# A worker process each: their number bounds the memory, and what an orderly end has to wait for.
PARALLELISM = 8
LOCK_SECONDS = 5
PATIENT_LOCK_SECONDS = 60


def render(home: Path, host: str, port: int, dags: Path, plugins: Path, database: str = "") -> str:
    """Return the text of `airflow.cfg` for an installation in `home`.

    Args:
        home: Its `AIRFLOW_HOME`.
        host: Address of its API server.
        port: Port of its API server.
        dags: Folder of the DAG files.
        plugins: Folder of the plugins.
        database: URL of its database on PostgreSQL; empty for SQLite in `home`.
    """
    keys = kept(home / "keys.json", new_keys())
    url = f"http://{host}:{port}"
    config = configparser.ConfigParser(interpolation=None)
    config.read_dict(_places(home, dags, plugins) | _server(host, port, keys) | _LOOPS)
    config.read_dict({"database": _database(home, database)})
    config.read_dict({"core": _core(url, keys["fernet"])})
    text = io.StringIO()
    config.write(text)
    return text.getvalue()


def check_database(url: str) -> str:
    """Return the URL of a database that Airflow can be kept in; empty stands for SQLite.

    Raises:
        RefusedError: It is of another kind, or for a driver that is not installed.
    """
    if url and not url.startswith("postgresql+psycopg://"):
        cure = "Give postgresql+psycopg://user:password@host/database, or nothing for SQLite"
        raise RefusedError(DATABASE_FIELD, f"{url.partition(':')[0]!r} is not what Airflow can be kept in here", cure)
    return url


def sqlite(home: Path, lock_seconds: int) -> str:
    """Return the URL of the database in `home`, whose users wait for its one writer for so long."""
    return f"sqlite:///{home}/airflow.db?timeout={lock_seconds}"


def passwords(home: Path) -> dict[str, str]:
    """Return the passwords by user, made at the first call."""
    return kept(home / "passwords.json", {user: secrets.token_urlsafe(12) for user in USERS})


def kept(path: Path, first: Mapping[str, str]) -> dict[str, str]:
    """Return the values that a private JSON file keeps, `first` when it is new."""
    if not path.exists():
        write_private(path, json.dumps(dict(first)))
    values: dict[str, str] = json.loads(path.read_text())
    return values


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def new_keys() -> dict[str, str]:
    """Return fresh keys for stored connections, browser sessions and tokens."""
    fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return {"fernet": fernet, "session": secrets.token_hex(32), "jwt": secrets.token_hex(64)}


def _places(home: Path, dags: Path, plugins: Path) -> dict[str, dict[str, str]]:
    return {
        "core": {
            "dags_folder": _escaped(dags),
            "plugins_folder": _escaped(plugins),
            "simple_auth_manager_passwords_file": _escaped(home / "passwords.json"),
        },
        "logging": {"base_log_folder": _escaped(home / "logs"), "colored_console_log": "False"},
    }


def _database(home: Path, url: str) -> dict[str, str]:
    if url:
        # Airflow would ask for asyncpg; this driver serves both.
        escaped = url.replace("%", "%%")
        return {"sql_alchemy_conn": escaped, "sql_alchemy_conn_async": escaped}
    # SQLite has one writer, and the API server waits for it in the event loop that the writer may need to go on:
    # this bounds how long the two can hold each other up, after which one of them is asked again.
    return {"sql_alchemy_conn": sqlite(home, LOCK_SECONDS).replace("%", "%%")}


def _server(host: str, port: int, keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    address = {"host": host, "port": str(port), "base_url": f"http://{host}:{port}"}
    return {
        "api": address | {"workers": "1", "secret_key": keys["session"]},
        "api_auth": {"jwt_secret": keys["jwt"]},
    }


def _core(url: str, fernet: str) -> dict[str, str]:
    return {
        "executor": "LocalExecutor",
        "parallelism": str(PARALLELISM),
        "load_examples": "False",
        # A new pipeline's DAGs run without a visit to the page.
        "dags_are_paused_at_creation": "False",
        "fernet_key": fernet,
        "execution_api_server_url": f"{url}/execution/",
        "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in USERS.items()),
        "min_serialized_dag_update_interval": "5",
    }


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")


BUNDLE = "rewind.parsing.dag_bundle.PipelinesDagBundle"
"""What has the DAG files parsed when a pipeline's folder changes."""
# A stack that one person looks at: react within seconds, and take little while nothing happens. DAG files are parsed
# when they or what they read change, which is looked for every few seconds; the interval is for what nobody foresaw.
# The tasks of a scheduler that was killed are seen by its successor at the orphan check alone, and only once
# the dead one's heartbeat is half a minute old: at the default interval a step would lie there for five minutes.
_LOOPS = {
    "scheduler": {
        "scheduler_idle_sleep_time": "0.5",
        "job_heartbeat_sec": "2",
        "scheduler_heartbeat_sec": "2",
        "orphaned_tasks_check_interval": "10",
    },
    "triggerer": {"job_heartbeat_sec": "2"},
    "dag_processor": {
        # The name of Airflow's own bundle, so that the DAGs of an older release stay what they are.
        "dag_bundle_config_list": json.dumps([{"name": "dags-folder", "classpath": BUNDLE, "kwargs": {}}]),
        "refresh_interval": "5",
        "min_file_process_interval": "900",
        "bundle_refresh_check_interval": "2",
        "parsing_processes": "1",
    },
}
