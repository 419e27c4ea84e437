"""Submits: what they are given, how their end is judged against the registry, and how they are ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from rewind_airflow import form
from rewind_airflow.hook import TrackedHook
from rewind_airflow.submits import (
    AbortSubmit,
    CollectSubmit,
    ConsumersSubmit,
    PlanSubmit,
    ProveSubmit,
    RollbackSubmit,
    StepSubmit,
)

from rewind.core.errors import RefusedError
from rewind.declared import forms
from rewind.registry import plannings, rewinds
from rewind.registry.database import writing
from rewind.views import change_count

CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"
STANDALONE = '{"conn_type":"spark","host":"spark://a:7077,b:7077","extra":{"deploy-mode":"cluster"}}'


@pytest.fixture
def form_filled(context):
    context["params"] = {name: param.resolve() for name, param in form.params().items()}
    return context


def test_plan_is_given_the_form_as_it_is(installation, form_filled, spark_submit, rewind_id):
    submits = spark_submit(mark=f"{rewind_id} plan")
    form_filled["params"] |= {"from": "P1D", "reason": "{{ ds }} `x`", "to": None}
    PlanSubmit(task_id="plan", pipeline="visits").execute(form_filled)
    arguments = eval(submits())
    assert arguments[arguments.index("--master") + 1] == "local[2]"
    assert arguments[arguments.index("--name") + 1] == f"{rewind_id}.plan"
    main = arguments.index("--rewind-id")
    assert arguments[main - 1].endswith("/main/plan.py")
    assert arguments[main + 1] == rewind_id
    assert arguments[-2:] == ["--pipeline", "visits"]
    asked = json.loads(arguments[main + 3])
    assert asked["reason"] == "{{ ds }} `x`"
    assert asked["from"] == "P1D"
    assert asked["to"] is None


@pytest.mark.parametrize("connection", ['{"conn_type":"spark","host":"local[2]"}', STANDALONE])
def test_a_driver_gets_nothing_of_airflows_environment(
    installation, form_filled, spark_submit, rewind_id, tmp_path, monkeypatch, connection
):
    spark_submit(driver="FINISHED" if connection == STANDALONE else "", mark=f"{rewind_id} plan")
    monkeypatch.setenv(CONNECTION, connection)
    for key in (
        "AIRFLOW__CORE__FERNET_KEY",
        "AIRFLOW__API_AUTH__JWT_SECRET",
        "AIRFLOW_VAR_TOKEN",
        "REWIND_AIRFLOW_PASSWORD",
    ):
        monkeypatch.setenv(key, "a-secret")
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    PlanSubmit(task_id="plan", pipeline="visits").execute(form_filled)
    given = eval((tmp_path / "submits.environment").read_text())
    assert [key for key in given if key.startswith(("AIRFLOW", "REWIND_AIRFLOW"))] == []
    assert "a-secret" not in str(given)
    assert given["SPARK_CONF_DIR"] == "/conf"
    assert given["REWIND_REGISTRY_URL"] == installation.registry_url
    assert given["PYTHONPATH"] == ""


def test_a_plan_makes_its_rewind_known_and_does_not_begin_once_it_is_aborted(
    installation, form_filled, spark_submit, rewind_id
):
    submits = spark_submit(mark=f"{rewind_id} plan")
    form_filled["params"] |= {"reason": "wrong day"}
    form_filled["dag_run"].triggering_user_name = "ada"
    plan = PlanSubmit(task_id="plan", pipeline="visits")
    plan.errand(form_filled, installation)
    with writing(installation.registry_url) as connection:
        (known,) = plannings.being_made(connection, "visits")
        assert (known.id, known.reason, known.dry_run) == (rewind_id, "wrong day", True)
        assert rewinds.asked_by(connection, rewind_id) == "ada"
    form_filled["params"] = {"rewind_id": rewind_id}
    with pytest.raises(AirflowSkipException, match=f"rewind {rewind_id} was being planned"):
        AbortSubmit(task_id="abort", job="abort", pipeline="visits").errand(form_filled, installation)
    form_filled["params"] = {name: param.resolve() for name, param in form.params().items()}
    with pytest.raises(AirflowFailException, match=f"rewind {rewind_id} was aborted while it was planned"):
        plan.execute(form_filled)
    assert submits() == ""


@pytest.mark.shows("secure", id_of_another_abort="refused")
def test_an_abort_leaves_alone_what_is_no_rewind_of_its_pipeline(installation, opened, form_filled, rewind_id):
    opened()
    with writing(installation.registry_url) as connection:
        plannings.ask(connection, "rw-0123456789", "orders", "", dry_run=False)
    before = change_count.number(installation.registry_url)
    for named, pipeline, told in (
        (rewind_id, "orders", f"'{rewind_id}' is no rewind of orders. Use the DAG of its own pipeline"),
        ("rw-0123456789", "visits", "'rw-0123456789' is no rewind of visits"),
        ("rw-9876543210", "visits", "rewind 'rw-9876543210' is unknown"),
    ):
        form_filled["params"] = {"rewind_id": named}
        with pytest.raises(RefusedError, match=f"rewind_id: {told}"):
            AbortSubmit(task_id="abort", job="abort", pipeline=pipeline).errand(form_filled, installation)
    assert change_count.number(installation.registry_url) == before


def test_a_reason_reaches_the_main_whatever_it_begins_with(installation, opened, form_filled, rewind_id, spark_submit):
    opened()
    form_filled["params"] = {"rewind_id": rewind_id, "reason": "--urgent"}
    errand = AbortSubmit(task_id="abort", job="abort", pipeline="visits").errand(form_filled, installation)
    assert errand.arguments == ["--rewind-id", rewind_id, "--pipeline", "visits", "--reason=--urgent"]


@pytest.mark.parametrize(
    ("parameters", "field"), [({"from": "abc"}, "from"), ({"nonsense": 1}, "nonsense"), ({"observe": "x"}, "observe")]
)
def test_a_bad_parameter_is_refused_before_any_submit(installation, form_filled, spark_submit, parameters, field):
    submits = spark_submit()
    form_filled["params"] |= parameters
    with pytest.raises(AirflowFailException, match=f"^{field}: "):
        PlanSubmit(task_id="plan", pipeline="visits").execute(form_filled)
    assert submits() == ""


@pytest.mark.parametrize(
    ("exit_code", "marked", "raised"),
    [
        (0, True, None),
        (1, True, None),
        (0, False, AirflowException),
        (75, False, AirflowException),
        (64, False, AirflowFailException),
        (65, False, AirflowFailException),
    ],
)
def test_a_step_is_believed_with_its_end_marker(opened, context, spark_submit, rewind_id, exit_code, marked, raised):
    opened()
    spark_submit(exit_code, mark=f"{rewind_id} backfill" if marked else "")
    if raised is None:
        StepSubmit(task_id="backfill").execute(context)
    else:
        with pytest.raises(raised) as failure:
            StepSubmit(task_id="backfill").execute(context)
        assert type(failure.value) is raised
        assert "the field: is bad. Fix it" in str(failure.value)


def test_a_step_of_a_small_plan_does_without_the_second_compiler(opened, context, spark_submit, rewind_id):
    opened()
    submits = spark_submit(mark=f"{rewind_id} backfill")
    StepSubmit(task_id="backfill").execute(context)
    assert "-XX:TieredStopAtLevel=1" in submits()


def test_a_marker_of_an_earlier_attempt_proves_nothing(installation, opened, context, spark_submit, rewind_id):
    opened()
    with writing(installation.registry_url) as connection:
        rewinds.end_step(
            connection, rewind_id, "backfill", rewinds.begin_step(connection, rewind_id, "backfill"), "done", {}
        )
    spark_submit(0)
    with pytest.raises(AirflowException, match="no end marker"):
        StepSubmit(task_id="backfill").execute(context)


@pytest.mark.parametrize(
    ("exit_code", "driver", "raised"),
    [
        (0, "FAILED", "the driver ended FAILED"),
        (0, "KILLED", "the driver ended KILLED"),
        (0, "UNKNOWN", "the driver ended UNKNOWN"),
        (1, "FINISHED", None),
        (0, "FINISHED", None),
    ],
)
def test_the_state_of_a_driver_in_the_cluster_decides(
    opened, context, spark_submit, rewind_id, monkeypatch, capsys, exit_code, driver, raised
):
    opened()
    spark_submit(exit_code, driver=driver, mark=f"{rewind_id} backfill")
    monkeypatch.setenv(CONNECTION, STANDALONE)
    task = StepSubmit(task_id="backfill")
    if raised:
        with pytest.raises(AirflowException, match=raised):
            task.execute(context)
    else:
        task.execute(context)
        assert capsys.readouterr().out.count("exit code 1, but the job came to its end") == exit_code


def test_cpu_of_the_process_tree_is_recorded(installation, opened, context, spark_submit, rewind_id):
    opened()
    spark_submit(0, mark=f"{rewind_id} spin_up")
    StepSubmit(task_id="spin_up").execute(context)
    with writing(installation.registry_url) as connection:
        (step,) = rewinds.steps_of(connection, rewind_id)
    assert 0.01 <= step.cpu_seconds <= 10


@pytest.mark.parametrize(
    ("kind", "step"), [("repair", "cut_over"), ("repair", "recheck"), ("rewind", "merge"), ("release", "merge")]
)
def test_a_step_of_another_kind_of_plan_is_skipped(opened, context, spark_submit, kind, step):
    opened(kind)
    submits = spark_submit()
    with pytest.raises(AirflowSkipException, match=f"a {kind} has no step {step}"):
        StepSubmit(task_id=step).execute(context)
    assert submits() == ""


def rolling_back(context, **asked):
    context["params"] = {"to": None, "reason": "wrong", "grace": "PT1H", "dry_run": False, **asked}
    return RollbackSubmit(task_id="rollback", job="rollback", pipeline="visits")


def test_a_rollback_hands_over_its_form_and_is_believed_by_its_mark(installation, context, spark_submit):
    rollback_id = forms.rollback_id(context["ti"].dag_id, context["ti"].run_id)
    submits = spark_submit(0, mark=f"{rollback_id} rollback")
    rolling_back(context).execute(context)
    assert f"'--rollback-id', '{rollback_id}', '--pipeline', 'visits', '--request'" in submits()
    defaults = {name: schema["default"] for name, schema in forms.ROLLBACK.items()}
    assert json.dumps({**defaults, "reason": "wrong", "dry_run": False}) in submits()
    spark_submit(0)
    with pytest.raises(AirflowException, match="rollback"):
        rolling_back(context).execute(context)
    rolling_back(context, dry_run=True).execute(context)


def test_a_move_of_consumers_hands_over_its_form_and_is_believed_by_its_mark(installation, context, spark_submit):
    move_id = forms.move_id(context["ti"].dag_id, context["ti"].run_id)
    context["params"] = {"consumer_groups": ["shop"], "from_job": None, "dry_run": False}
    submits = spark_submit(0, mark=f"{move_id} consumers")
    moving = ConsumersSubmit(task_id="consumers", job="consumers", pipeline="visits")
    moving.execute(context)
    assert (
        f"'--move-id', '{move_id}', '--pipeline', 'visits', '--request', '{{\"consumer_groups\": [\"shop\"]"
        in submits()
    )
    spark_submit(0)
    with pytest.raises(AirflowException, match="consumers"):
        moving.execute(context)
    context["params"]["consumer_groups"] = ["a,b"]
    with pytest.raises(AirflowFailException, match=r"consumer_groups\.0: "):
        moving.execute(context)


def test_a_rollback_with_a_bad_form_submits_nothing(installation, context, spark_submit):
    submits = spark_submit()
    with pytest.raises(AirflowFailException, match="grace: "):
        rolling_back(context, grace="soon").execute(context)
    assert submits() == ""


@pytest.mark.parametrize(("state", "raised"), [("aborted", AirflowFailException), ("finished", AirflowSkipException)])
def test_a_step_of_a_rewind_that_has_ended_submits_nothing(
    installation, opened, context, spark_submit, rewind_id, state, raised
):
    opened()
    submits = spark_submit()
    with writing(installation.registry_url) as connection:
        rewinds.close(connection, rewind_id, state)
    with pytest.raises(raised, match=f"{rewind_id} is {state}"):
        StepSubmit(task_id="cut_over").execute(context)
    assert submits() == ""


def test_a_changed_bundle_is_refused(installation, opened, context, spark_submit):
    plan = opened()
    submits = spark_submit()
    with (installation.data / "bundles" / plan.bundle / "main" / "backfill.py").open("a") as main:
        main.write("#")
    with pytest.raises(AirflowFailException, match=r"changed since it was frozen: main/backfill\.py"):
        StepSubmit(task_id="backfill").execute(context)
    assert submits() == ""


@pytest.mark.parametrize(
    ("kind", "job", "params", "arguments"),
    [
        (CollectSubmit, "collect_garbage", {"dry_run": True}, ["--dry-run"]),
        (CollectSubmit, "collect_garbage", {"dry_run": False}, []),
        (ProveSubmit, "prove", {"topic": None}, []),
        (ProveSubmit, "prove", {}, []),
        (ProveSubmit, "prove", {"topic": "visits"}, ["--topic", "visits"]),
    ],
)
def test_collection_and_proof_need_no_rewind(installation, context, spark_submit, kind, job, params, arguments):
    submits = spark_submit(0)
    context["params"] = params
    kind(task_id=job, job=job).execute(context)
    given = eval(submits())
    assert given[next(i for i, a in enumerate(given) if a.endswith(f"/main/{job}.py")) + 1 :] == arguments


def test_a_topic_that_is_no_name_is_refused_before_the_submit(installation, context, spark_submit):
    submits = spark_submit(0)
    context["params"] = {"topic": "../visits"}
    with pytest.raises(AirflowFailException, match=r"'\.\./visits' is no legal name"):
        ProveSubmit(task_id="prove", job="prove").execute(context)
    assert submits() == ""


@pytest.mark.parametrize(
    ("forms", "master", "mode"),
    [
        (
            ["spark://host:7077", '{"conn_type":"spark","host":"spark://host","port":7077}'],
            "spark://host:7077",
            "client",
        ),
        (
            [
                "spark://host:7077?deploy-mode=cluster",
                '{"conn_type":"spark","host":"host","port":7077,"extra":{"deploy-mode":"cluster"}}',
            ],
            "spark://host:7077",
            "cluster",
        ),
        (["spark://local%5B2%5D", '{"conn_type":"spark","host":"local[2]"}'], "local[2]", "client"),
    ],
)
def test_both_forms_of_a_connection_give_the_same_target(monkeypatch, forms, master, mode):
    for text in forms:
        monkeypatch.setenv(CONNECTION, text)
        assert TrackedHook("spark_default").target == (master, mode)


@pytest.mark.parametrize(
    ("connection", "problem"),
    [
        ("spark://host", "'host' is no Spark master"),
        ('{"conn_type":"spark","host":"local[2]","extra":{"deploy-mode":"cluster"}}', "cannot be tracked"),
        ('{"conn_type":"spark","host":"yarn","extra":{"deploy-mode":"cluster"}}', "cluster mode without tracking"),
    ],
)
def test_a_driver_that_could_not_be_followed_is_refused(monkeypatch, connection, problem):
    monkeypatch.setenv(CONNECTION, connection)
    with pytest.raises(RefusedError, match=problem) as refused:
        TrackedHook("spark_default")
    assert refused.value.field == "spark_default"


def test_a_missing_connection_is_an_error_and_never_yarn(monkeypatch):
    monkeypatch.delenv(CONNECTION, raising=False)
    with pytest.raises(RefusedError, match="there is no Spark connection of that id"):
        TrackedHook("spark_default")


def test_a_kill_ends_the_whole_tree(monkeypatch):
    monkeypatch.setenv(CONNECTION, '{"conn_type":"spark","host":"local[2]"}')
    hook = TrackedHook("spark_default")
    # As a JVM with a Python driver that sleeps, deaf to SIGTERM and in a group of its own.
    driver = "import os, signal, time; os.setpgid(0, 0); signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {driver!r}]).wait()"
    hook._submit_sp = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 10
    while not (tree := psutil.Process(hook._submit_sp.pid).children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    began = time.monotonic()
    hook.on_kill()
    assert time.monotonic() - began < 4.5
    assert hook._submit_sp.wait(5) != 0
    _, alive = psutil.wait_procs(tree, timeout=5)
    assert alive == []


def test_the_id_that_spark_gives_an_application_is_noted(monkeypatch):
    monkeypatch.setenv(CONNECTION, '{"conn_type":"spark","host":"local[2]"}')
    hook = TrackedHook("spark_default")
    assert hook.application_id == ""
    hook._process_spark_submit_log(iter(["INFO [rw-1] spark application local-17", "INFO [rw-1] more"]))
    assert hook.application_id == "local-17"
