"""The DAG files: what they make, what parsing them costs, and what one broken pipeline takes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
GOOD = 'source: {topic: clicks, schema: "a STRING"}\noutput: {topic: out}\n'
PIPELINES = {
    "visits": GOOD,
    "carts": GOOD,
    "torn": "source: {topic: ",
    "typo": "source: {topic: t, schema: s, columns: s}\noutput: {topic: o}",
}

# Runs as Airflow's dag-processor does, with the DAG folder on the path; once for each environment on its input.
PARSE = """\
import json, os, sys
sys.path.insert(0, sys.argv[1])
from airflow.dag_processing.dagbag import DagBag

def parsed():
    bag = DagBag(sys.argv[1])
    heavy = {"pyspark", "great_expectations", "kafka", "delta", "alembic.command"} & set(sys.modules)
    errors = {path.rpartition("/")[2]: text for path, text in bag.import_errors.items()}
    return {"dags": {name: described(dag) for name, dag in bag.dags.items()}, "errors": errors, "heavy": sorted(heavy)}

def described(dag):
    return {
        "tasks": {task.task_id: type(task).__name__ for task in dag.tasks},
        "waits": {t.task_id: [t.mode, t.pool, t.retries] for t in dag.tasks if hasattr(t, "mode")},
        "retries": {t.task_id: t.retries for t in dag.tasks},
        "silent": [t.task_id for t in dag.tasks if not t.on_failure_callback],
        "params": {t.task_id: sorted(t.params) for t in dag.tasks if t.params and len(dag.params) > 2},
        "start": None if dag.start_date is None else dag.start_date.isoformat(),
        "links": {t.task_id: [link.name for link in t.operator_extra_links] for t in dag.tasks},
        "schedule": dag.schedule if isinstance(dag.schedule, str | None) else dag.schedule.serialize(),
        "max_active_runs": dag.max_active_runs,
        "doc": dag.doc_md or "",
    }

results = []
for environment in json.load(sys.stdin):
    os.environ.update(environment)
    results.append(parsed())
print("PARSED" + json.dumps(results))
"""


SHIPPED = (
    "visits_converter",
    "visits_window_counter",
    "visits_closed_windows",
    "visits_sessions",
    "visits_deduplicated",
)


@pytest.fixture(scope="module")
def parses(tmp_path_factory):
    """The DAGs with every setting unset, with some broken pipelines, without any, and of an installation."""
    folder, empty = tmp_path_factory.mktemp("pipelines"), tmp_path_factory.mktemp("empty")
    for name, yaml in PIPELINES.items():
        (folder / name).mkdir()
        (folder / name / "logic.py").write_text("")
        (folder / name / "pipeline.yaml").write_text(yaml)
    cron = "*/5 * * * *"
    schedules = {"REWIND_GARBAGE_SCHEDULE": cron, "REWIND_PROOF_SCHEDULE": "7 1 * * *"}
    schedules |= {"REWIND_NIGHTLY_SCHEDULE": "never"}
    home = tmp_path_factory.mktemp("home")
    (home / "data").mkdir()
    (home / "data" / "since").write_text("2026-03-01T12:34:00+00:00")
    made = {"REWIND_HOME": str(home), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1", "REWIND_PIPELINES": str(folder)}
    asked = [{}, {"REWIND_PIPELINES": str(folder)}, {"REWIND_PIPELINES": str(empty), **schedules}]
    asked.append({**made, "REWIND_NIGHTLY_SCHEDULE": ""})
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("REWIND_", "AIRFLOW_"))}
    own = {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")), "PYTHONPATH": str(PROJECT / "include")}
    command = [sys.executable, "-c", PARSE, str(PROJECT / "dags")]
    done = subprocess.run(
        command, input=json.dumps(asked), env={**kept, **own}, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("PARSED")[2])


@pytest.fixture(scope="module")
def checkout(parses):
    """The DAGs of the checkout with every setting unset."""
    return parses[0]


def lifecycle_dags(*pipelines):
    kinds = ("rewind", "rollback", "consumers", "abort", "deploy", "stream", "nightly_replay")
    return {f"{kind}_{name}" for name in pipelines for kind in kinds}


def test_every_file_imports_with_every_setting_unset(checkout):
    assert checkout["errors"] == {}
    shared = {"watch_streams", "collect_garbage", "prove_mirrors", "check_pipelines"}
    assert set(checkout["dags"]) == lifecycle_dags(*SHIPPED) | {"mirror_visits"} | shared


def test_parsing_imports_nothing_heavy_and_asks_neither_registry_nor_kafka(checkout):
    # Kafka's client and the migrations are what any question to the world would have to import.
    assert checkout["heavy"] == []


def test_a_broken_pipeline_takes_away_only_its_own_dags_and_is_named(parses):
    broken = parses[1]
    assert set(broken["dags"]) == lifecycle_dags("visits", "carts") | {
        "mirror_clicks",
        "watch_streams",
        "collect_garbage",
        "prove_mirrors",
    }
    assert list(broken["errors"]) == ["checks.py"]
    assert "pipelines/torn: torn/pipeline.yaml:1:17: is not valid YAML" in broken["errors"]["checks.py"]
    assert "pipelines/typo: typo/pipeline.yaml:1: source: Additional properties" in broken["errors"]["checks.py"]


def test_no_pipeline_at_all_is_no_error(parses):
    assert parses[2]["errors"] == {}
    assert set(parses[2]["dags"]) == {"watch_streams", "collect_garbage", "prove_mirrors", "check_pipelines"}
    assert parses[2]["dags"]["collect_garbage"]["schedule"] == "*/5 * * * *"
    assert parses[2]["dags"]["prove_mirrors"]["schedule"] == "7 1 * * *"


def test_the_steps_of_a_rewind(checkout):
    assert checkout["dags"]["rewind_visits_converter"]["tasks"] == {
        "plan": "PlanSubmit",
        "go_on": "ShortCircuitOperator",
        "spin_up": "StepSubmit",
        "backfill": "StepSubmit",
        "start_candidate": "StartCandidate",
        "catch_up": "CatchUp",
        "validate": "StepSubmit",
        "approve": "Approve",
        "cut_over": "StepSubmit",
        "announce": "Announce",
        "observe": "Observe",
        "roll_back": "TriggerRollback",
        "merge": "StepSubmit",
        "ended": "EmptyOperator",
        "abort": "TriggerAbort",
    }


def test_every_task_tells_of_its_failure(checkout):
    assert {name: dag["silent"] for name, dag in checkout["dags"].items() if dag["silent"]} == {
        "check_pipelines": ["names"]
    }


def test_the_steps_lead_to_the_page(checkout):
    found = checkout["dags"]["rewind_visits_converter"]["links"]
    assert {task for task, named in found.items() if "Rewind page" in named} == {
        *("plan", "spin_up", "backfill", "catch_up", "validate", "approve", "cut_over", "observe", "merge")
    }
    nightly = checkout["dags"]["nightly_replay_visits_converter"]["links"]
    assert nightly == {"replay": ["Rewind page", "Evidence", "Spark history"]}


def test_waits_hold_no_slot_and_outlive_a_failed_look(checkout):
    waits = {f"{dag}.{task}": wait for dag, d in checkout["dags"].items() for task, wait in d["waits"].items()}
    assert waits == {
        **{
            f"rewind_{name}.{wait}": ["reschedule", "default_pool", 100]
            for name in SHIPPED
            for wait in ("catch_up", "observe")
        },
        **{f"stream_{name}.supervise": ["reschedule", "streams", 10_000] for name in SHIPPED},
        "mirror_visits.supervise": ["reschedule", "streams", 10_000],
    }


def test_only_the_shared_dags_and_the_nights_are_scheduled(checkout):
    scheduled = {name: dag["schedule"] for name, dag in checkout["dags"].items() if dag["schedule"]}
    assert scheduled == {
        "watch_streams": "* * * * *",
        "collect_garbage": "0 * * * *",
        "prove_mirrors": "30 2 * * *",
        **{f"nightly_replay_{name}": {"expression": "30 2 * * *", "timezone": "UTC"} for name in SHIPPED},
    }


def test_a_long_form_is_kept_by_its_dag_and_not_by_each_task(checkout):
    forms = ("rewind", "rollback", "consumers")
    kept = {name: dag["params"] for name, dag in checkout["dags"].items() if name.startswith(forms)}
    assert len(kept) == 3 * len(SHIPPED)
    own = {f"rewind_{name}": {"approve": ["reason"]} for name in SHIPPED}
    assert {name: params for name, params in kept.items() if params} == own


def test_what_is_scheduled_begins_with_the_installation(parses):
    for checkout, made in ((parses[0], "2025-01-01T00:00:00+00:00"), (parses[3], "2026-03-01T12:34:00+00:00")):
        shared = ("collect_garbage", "prove_mirrors", "watch_streams")
        assert {name: checkout["dags"][name]["start"] for name in shared} == dict.fromkeys(shared, made)
    assert parses[3]["dags"]["nightly_replay_visits"]["start"] == "2026-03-01T02:30:00+00:00"


def test_a_look_at_the_streams_is_not_red_for_a_moment_in_which_nothing_answers(checkout):
    assert checkout["dags"]["watch_streams"]["retries"] == {"find": 2, "start": 2}


def test_a_second_rewind_is_refused_by_its_plan_and_not_queued(checkout):
    assert checkout["dags"]["rewind_visits_converter"]["max_active_runs"] == 16


def test_every_dag_documents_itself(checkout):
    assert [name for name, dag in checkout["dags"].items() if len(dag["doc"]) < 100] == []
    assert "## When something goes wrong" in checkout["dags"]["rewind_visits_converter"]["doc"]
