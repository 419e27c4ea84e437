from __future__ import annotations

from pathlib import Path

import pytest

from rewind.local import airflow
from tests.support.fakes import installation


def test_awaited_are_the_files_that_airflow_parses(tmp_path: Path) -> None:
    texts = {
        "rewinds.py": "from airflow.sdk import dag",
        "nested/mirrors.py": "from airflow.sdk import DAG",
        "constants.py": "ANSWER = 42",
        "helpers/form.py": "from airflow.sdk import dag",
        "draft_x.py": "from airflow.sdk import dag",
        ".airflowignore": "helpers/\ndraft_*\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert airflow._dag_files(tmp_path) == {"rewinds.py", "mirrors.py"}


def test_a_heartbeat_of_the_predecessor_does_not_count() -> None:
    health = {"status": "healthy", "beat": "2026-01-01T00:00:10+00:00"}
    since = 1767225610.0

    assert airflow._beats(health, "beat", since)
    assert not airflow._beats(health, "beat", since + 1)
    assert not airflow._beats(health | {"status": "unhealthy"}, "beat", since)
    assert not airflow._beats({"status": "healthy"}, "beat", since)


@pytest.mark.parametrize(
    ("database", "patient"), [("", ["dag-processor", "scheduler"]), ("postgresql+psycopg://h/a", [])]
)
def test_who_no_event_loop_depends_on_waits_longer_for_sqlite(
    tmp_path: Path, database: str, patient: list[str]
) -> None:
    made = airflow.Airflow(installation(tmp_path), 8080, tmp_path, tmp_path, database)
    url = f"sqlite:///{tmp_path}/airflow/airflow.db?timeout=60"
    given = {c.name: c.environment.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for c in made.commands()}

    assert sorted(name for name, chosen in given.items() if chosen == url) == patient
    assert {name for name, chosen in given.items() if chosen is None} == airflow.ARGUMENTS.keys() - {*patient}


def test_what_dag_files_read_reaches_every_process_as_it_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWIND_NOTIFIER", "of.the.Shell")
    made = airflow.Airflow(installation(tmp_path), 8080, tmp_path, tmp_path, "", {"REWIND_NOTIFIER": "a.Chosen"})
    assert {command.environment["REWIND_NOTIFIER"] for command in made.commands()} == {"a.Chosen"}
    bare = airflow.Airflow(installation(tmp_path), 8080, tmp_path, tmp_path)
    assert not any("REWIND_NOTIFIER" in command.environment for command in bare.commands())
