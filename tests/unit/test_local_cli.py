"""What `make up` says of DAG files that cannot be imported, and what it passes on."""

from __future__ import annotations

from pathlib import Path

from rewind.cli import stack as command
from rewind.core.settings import from_environment
from rewind.local import stack
from rewind.local.airflow import Airflow

FRAMES = """Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 241, in _call_with_frames_removed
  File "/opt/rewind/dags/checks.py", line 15, in <module>
    raise ImportError("\\n".join(problems))
"""


def test_each_broken_folder_is_a_line_below_the_frames():
    told = "ImportError: pipelines/a: a/pipeline.yaml:1: is not valid YAML\npipelines/b: b/pipeline.yaml:2: x"
    assert command._error_of({"stack_trace": f"{FRAMES}{told}\n"}) == told


def test_an_error_without_frames_is_told_whole():
    assert command._error_of({"stack_trace": "DagBag import timeout\n"}) == "DagBag import timeout"


def test_what_is_documented_for_tasks_reaches_them(monkeypatch, tmp_path):
    documented = {
        "REWIND_MIRROR_RETAIN_HOURS": "48",
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "SPARK_CONF_DIR": "/etc/spark",
        "REWIND_NIGHTLY_ZONE": "Europe/Berlin",
    }
    shell = {**documented, "SPARK_HOME": "/opt/spark", "AIRFLOW__CORE__EXECUTOR": "SequentialExecutor"}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    settings = from_environment({"REWIND_HOME": str(tmp_path), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
    passed = stack._passed_on({}, shell)
    assert passed == documented
    made = Airflow(settings, 1, Path(), Path(), "", passed).environment()
    assert {name: made.get(name) for name in shell} == {**dict.fromkeys(shell), **documented}


def test_a_stack_that_runs_keeps_what_it_was_told():
    kept = {"of_dags": {"REWIND_MIRROR_RETAIN_HOURS": "48", "SPARK_CONF_DIR": "/etc/spark"}}
    assert stack._passed_on(kept, {"SPARK_CONF_DIR": "/other"}) == {**kept["of_dags"], "SPARK_CONF_DIR": "/other"}
