"""When DAG files are parsed again: what asks for it, what does not, and what a parse costs."""

from __future__ import annotations

import os

import pytest
from airflow import settings as airflow_settings
from airflow.models.dagbag import DagPriorityParsingRequest
from airflow.utils.session import create_session
from sqlalchemy import select

from rewind.parsing.dag_bundle import PipelinesDagBundle

DAG_FILE = "from airflow.sdk import DAG\n"


@pytest.fixture
def bundle(tmp_path, pipelines_folder, monkeypatch):
    """A bundle of two DAG files and a module beside them, over one pipeline, as the DAG processor has it at rest."""
    DagPriorityParsingRequest.__table__.create(airflow_settings.engine, checkfirst=True)
    monkeypatch.delenv("REWIND_HOME", raising=False)
    monkeypatch.setenv("REWIND_PIPELINES", str(pipelines_folder))
    dags = tmp_path / "dags"
    (dags / "ours").mkdir(parents=True)
    (dags / ".airflowignore").write_text("ours/\n")
    for name in ("rewinds.py", "streams.py", "ours/wiring.py"):
        (dags / name).write_text(DAG_FILE)
    made = PipelinesDagBundle(name="dags-folder", path=str(dags))
    made.refresh()
    assert asked_for() == []
    yield made
    asked_for()


def asked_for():
    """Take what was asked for, as the DAG processor does."""
    with create_session() as session:
        found = session.scalars(select(DagPriorityParsingRequest)).all()
        taken = sorted((request.bundle_name, request.relative_fileloc) for request in found)
        for request in found:
            session.delete(request)
    return taken


ALL = [("dags-folder", "rewinds.py"), ("dags-folder", "streams.py")]


def later(path):
    """Make a file look changed, whatever the clock of the disk can tell apart."""
    os.utime(path, ns=(path.stat().st_mtime_ns + 1,) * 2)


def test_nothing_is_parsed_again_while_nothing_changes(bundle):
    bundle.refresh()
    assert asked_for() == []


def test_a_new_pipeline_has_all_files_parsed_once(bundle, declare, pipelines_folder):
    declare("carts")
    bundle.refresh()
    assert asked_for() == ALL
    bundle.refresh()
    assert asked_for() == []


@pytest.mark.parametrize("name", ["pipeline.yaml", "expectations.json"])
def test_a_pipeline_that_declares_something_else_has_all_files_parsed(bundle, pipelines_folder, name):
    path = pipelines_folder / "visits" / name
    path.touch()
    later(path)
    bundle.refresh()
    assert asked_for() == ALL


def test_a_pipeline_that_goes_has_all_files_parsed(bundle, pipelines_folder):
    (pipelines_folder / "visits" / "pipeline.yaml").unlink()
    bundle.refresh()
    assert asked_for() == ALL


def test_new_code_of_a_pipeline_changes_no_dag_but_its_absence_does(bundle, pipelines_folder):
    logic = pipelines_folder / "visits" / "logic.py"
    logic.write_text("def transform(frame):\n    return frame.limit(1)\n")
    later(logic)
    bundle.refresh()
    assert asked_for() == []
    logic.unlink()
    bundle.refresh()
    assert asked_for() == ALL


def test_a_module_beside_the_dag_files_has_them_parsed_and_their_own_change_is_left_to_airflow(bundle):
    later(bundle.path / "rewinds.py")
    bundle.refresh()
    assert asked_for() == []
    later(bundle.path / "ours" / "wiring.py")
    bundle.refresh()
    assert asked_for() == ALL


def test_what_is_asked_for_already_is_asked_for_once(bundle, declare):
    for name in ("carts", "orders"):
        declare(name)
        bundle.refresh()
    assert asked_for() == ALL


def test_without_settings_the_pipelines_are_those_of_the_checkout(bundle, monkeypatch):
    monkeypatch.delenv("REWIND_PIPELINES")
    made = bundle.path.parent / "include" / "pipelines" / "carts" / "pipeline.yaml"
    bundle.refresh()
    asked_for()
    made.parent.mkdir(parents=True)
    made.touch()
    bundle.refresh()
    assert asked_for() == ALL


def test_a_task_that_makes_the_bundle_asks_for_nothing(bundle, declare):
    declare("carts")
    PipelinesDagBundle(name="dags-folder", path=str(bundle.path)).initialize()
    assert asked_for() == []
