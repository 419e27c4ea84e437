"""The commands: parsing, what they call, exit codes."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request

import pytest

from rewind.airflow_api.client import AirflowApiError
from rewind.cli import context, main, pointer_server, trigger
from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.core.planning.stages import REWIND
from rewind.declared import forms
from rewind.declared.forms import rewind_id
from rewind.registry import audit, database, generations, rewinds, streams

PIPELINE = Pipeline("visits_converter", "visits", "a STRING", "visits_converted")


class FakeAirflow:
    def __init__(self, error=None):
        self.runs, self.error, self.ended = [], error, []

    def trigger(self, dag_id, conf):
        if self.error:
            raise self.error
        self.runs.append((dag_id, dict(conf)))
        return {"dag_run_id": "run-1"}

    def dag_runs(self, dag_id):
        return [{"dag_run_id": "run-1", "state": "running"}, {"dag_run_id": "another", "state": "running"}]

    def task_instances(self, dag_id, run_id):
        return [{"task_id": "backfill", "state": "running"}, {"task_id": "plan", "state": "success"}]

    def end_task(self, dag_id, run_id, task_id):
        self.ended.append((run_id, task_id))


@pytest.fixture
def airflow(monkeypatch):
    made = FakeAirflow()
    monkeypatch.setattr(context, "airflow_api", lambda: made)
    return made


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("REWIND_REGISTRY_URL", "REWIND_DATA", "REWIND_AIRFLOW_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REWIND_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REWIND_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("REWIND_PIPELINES", str(tmp_path / "pipelines"))
    (tmp_path / "pipelines").mkdir()
    return tmp_path / "home"


@pytest.fixture
def registry(home):
    url = context.settings().registry_url
    database.upgrade(url)
    with database.writing(url) as connection:
        made = Generation(
            job_id="visits_converter-g1",
            pipeline="visits_converter",
            state=lifecycle.CANDIDATE,
            topic_id="id-1",
            bundle="b",
            frozen={"config": PIPELINE.frozen()},
            start={0: 0},
            handoff={0: 0},
            output_topic="visits_converted-g1",
            dead_letter_topic="visits_converted-g1-dead",
        )
        generations.create(connection, made, None)
        generations.set_first(connection, made.job_id)
        streams.wish(connection, made.job_id, streams.GENERATION, streams.DRAIN)
        rewinds.open_rewind(connection, "rw-1", plan())
    return url


def plan():
    return sealed(
        Plan(
            kind=REWIND,
            request=Request("visits_converter"),
            job_id="visits_converter-g2",
            live_job_id="visits_converter-g1",
            epoch=1,
            topic="visits",
            topic_id="id-1",
            start={0: 0},
            end={0: 9},
            mirror_version=0,
            records=9,
            bytes=90,
            chunks=1,
            estimate_seconds=0.1,
            differences=(),
            config=PIPELINE.frozen(),
            bundle="b1",
            output_schema="a STRING",
            output_topic="visits_converted-g2",
            dead_letter_topic="visits_converted-g2-dead",
        )
    )


def controls(url):
    with database.writing(url) as connection:
        return rewinds.controls(connection, "rw-1")


def test_pause_throttle_and_resume_keep_each_other(registry, capsys):
    assert main.main(["throttle", "rw-1", "--rate", "500"]) == 0
    assert controls(registry) == (False, 500)
    assert main.main(["pause", "rw-1"]) == 0
    assert controls(registry) == (True, 500)
    assert main.main(["resume", "rw-1"]) == 0
    assert controls(registry) == (False, 500)
    assert main.main(["throttle", "rw-1"]) == 0
    assert controls(registry) == (False, None)
    assert capsys.readouterr().out.splitlines() == [
        "rw-1: at most 500 records/s",
        "rw-1: paused",
        "rw-1: goes on, at most 500 records/s",
        "rw-1: no limit",
    ]


def test_a_bad_rate_is_refused_and_changes_nothing(registry, capsys):
    assert main.main(["throttle", "rw-1", "--rate", "0"]) == 64
    assert capsys.readouterr().err == "error: records_per_second: 0 is below 1. Pause the backfill instead\n"
    assert controls(registry) == (False, None)


def test_finish_fixes_the_fact(registry):
    assert main.main(["finish", "rw-1"]) == 0
    with database.writing(registry) as connection:
        assert rewinds.fact(connection, "rw-1", "finish_now") is True


@pytest.mark.parametrize("command", [["pause", "rw-9"], ["finish", "rw-9"], ["abort", "rw-9"]])
def test_an_unknown_rewind_is_one_line_and_64(registry, airflow, capsys, command):
    assert main.main(command) == 64
    error = capsys.readouterr().err
    assert error == "error: rewind_id: rewind 'rw-9' is unknown. Look at `python -m rewind status`\n"
    assert airflow.runs == []


def test_run_and_drain_wish(registry, capsys):
    assert main.main(["run", "visits_converter-g1"]) == 0
    with database.writing(registry) as connection:
        assert streams.needed(connection, "visits_converter-g1").wish == streams.RUN
    assert main.main(["drain", "visits_converter-g1"]) == 0
    with database.writing(registry) as connection:
        assert streams.needed(connection, "visits_converter-g1").wish == streams.DRAIN
    assert main.main(["run", "nothing"]) == 64
    assert "error: owner: 'nothing' is no stream." in capsys.readouterr().err


def test_status_as_json_with_broker_down(registry, capsys):
    assert main.main(["status", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["problems"] == ["Kafka at 127.0.0.1:1 does not answer: its ends are unknown"]
    assert body["pipelines"][0]["live"] == "visits_converter-g1"
    assert body["pipelines"][0]["rewinds"][0]["id"] == "rw-1"


def test_status_for_people_names_what_there_is(registry, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main.main(["status"]) == 0
    text = capsys.readouterr().out
    for word in ("visits_converter", "visits_converter-g1", "rw-1", "drained", "its ends are unknown", "backfill"):
        assert word in text


def test_status_of_an_empty_installation_is_a_plain_message(home, capsys):
    assert main.main(["status"]) == 0
    captured = capsys.readouterr()
    assert "registry: there is none at" in captured.out
    assert "No pipeline is declared" in captured.out
    assert captured.err == ""


def test_status_of_an_unreachable_registry_is_75(home, monkeypatch, capsys):
    monkeypatch.setenv("REWIND_REGISTRY_URL", f"sqlite:///{home}")
    home.mkdir()
    (home / "file.db").write_text("this is no database, but long enough to look like a file of one" * 20)
    monkeypatch.setenv("REWIND_REGISTRY_URL", f"sqlite:///{home}/file.db")
    assert main.main(["status"]) == 75
    assert "file is not a database" in " ".join(capsys.readouterr().out.split())


def test_resolve(registry, capsys):
    assert main.main(["resolve", "visits_converter", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output_topic"] == "visits_converted-g1"
    assert main.main(["resolve", "other"]) == 64


def test_a_plan_is_shown_as_a_dry_run_prints_it(registry, capsys):
    made = plan()
    assert main.main(["plans", "show", made.id]) == 0
    assert capsys.readouterr().out.startswith(f"Plan {made.id}: rewind of visits_converter as visits_converter-g2")
    assert main.main(["plans", "show", made.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(made.to_json())
    assert main.main(["plans", "show", "0"]) == 64


def test_start_triggers_with_what_was_given_and_nothing_else(home, airflow, capsys):
    command = ["start", "visits_converter", "--from", "P1D", "--observe", "PT20S", "--same-code"]
    assert main.main([*command, "--overrides", '{"max_offsets": 5}']) == 0
    conf = {"from": "P1D", "overrides": {"max_offsets": 5}, "same_code": True, "observe": "PT20S", "dry_run": False}
    assert airflow.runs == [("rewind_visits_converter", conf)]
    assert capsys.readouterr().out.splitlines() == [
        "rewind_visits_converter: run run-1",
        f"rewind {rewind_id('rewind_visits_converter', 'run-1')}",
    ]


def test_a_rewind_is_known_and_can_be_aborted_from_when_its_id_is_printed(registry, airflow, capsys):
    assert main.main(["start", "visits_converter", "--reason", "wrong day"]) == 0
    made = rewind_id("rewind_visits_converter", "run-1")
    assert capsys.readouterr().out.splitlines()[-1] == f"rewind {made}"
    main.main(["status"])
    assert re.search(rf"rewind {made} planning, since \S+ \S+Z  \(wrong day\)", capsys.readouterr().out)

    assert main.main(["approve", made]) == 64
    assert f"rewind {made} is being planned. Wait for its plan, or abort it" in capsys.readouterr().err
    # A second rewind is not kept from being planned: which one is first is said when one has its plan.
    runs = list(airflow.runs)
    assert main.main(["abort", made, "--reason", "no"]) == 0
    assert capsys.readouterr().out == f"{made}: aborted while it was planned; there is nothing to take back\n"
    with database.writing(context.settings().registry_url) as connection:
        (act,) = audit.read(connection, 10)
        assert (act.action, act.subject, act.said) == ("abort", made, {"reason": "no"})
    assert (airflow.runs, airflow.ended) == (runs, [("run-1", "backfill")])
    main.main(["status"])
    assert made not in capsys.readouterr().out
    assert main.main(["abort", made]) == 64
    assert f"rewind {made} was aborted while it was planned (no). Trigger a new run" in capsys.readouterr().err


def test_a_rewind_is_started_where_no_registry_is_in_reach(home, airflow):
    assert main.main(["start", "visits_converter"]) == 0
    assert len(airflow.runs) == 1


def test_a_bad_parameter_is_refused_before_any_run(airflow, capsys):
    for command in ("plan", "start"):
        assert main.main([command, "visits_converter", "--from", "yesterday"]) == 64
        assert capsys.readouterr().err.startswith("error: from: ")
    assert airflow.runs == []


@pytest.mark.parametrize("text", ["[1]", "no json"])
def test_overrides_must_be_an_object(airflow, text):
    with pytest.raises(SystemExit) as ended:
        main.main(["start", "visits_converter", "--overrides", text])
    assert ended.value.code == 2


def test_deploy_and_abort_trigger_their_dags(registry, airflow, monkeypatch):
    asked = "rw-0123456789"
    monkeypatch.setattr(forms, "rewind_id", lambda _, run_id: asked if run_id == "run-1" else "rw-other")
    with database.writing(registry) as connection:
        rewinds.close(connection, "rw-1", lifecycle.FINISHED)
        rewinds.open_rewind(connection, asked, plan())
    assert main.main(["deploy", "visits_converter", "--from", "group:old"]) == 0
    assert main.main(["abort", asked, "--reason", "wrong day"]) == 0
    assert airflow.runs == [
        ("deploy_visits_converter", {"from": "group:old"}),
        ("abort_visits_converter", {"rewind_id": asked, "reason": "wrong day"}),
    ]
    assert airflow.ended == [("run-1", "backfill")]


def test_rollback_triggers_its_dag_after_checking_the_form(airflow, capsys):
    assert main.main(["rollback", "visits_converter", "--no-dry-run", "--to", "visits_converter-g1"]) == 0
    assert airflow.runs == [("rollback_visits_converter", {"to": "visits_converter-g1", "dry_run": False})]
    assert "rollback rb-" in capsys.readouterr().out
    assert main.main(["rollback", "visits_converter", "--grace", "soon"]) != 0
    assert len(airflow.runs) == 1
    assert "grace: " in capsys.readouterr().err


def test_consumers_triggers_its_dag_after_checking_the_form(airflow, capsys):
    asked = ["consumers", "visits_converter", "--consumer-groups", "shop", "bank", "--only-new", "replay"]
    assert main.main(asked) == 0
    conf = {"consumer_groups": ["shop", "bank"], "only_new": "replay"}
    assert airflow.runs == [("consumers_visits_converter", conf)]
    assert "moves cg-" in capsys.readouterr().out
    assert main.main([*asked, "--replay-from", "soon"]) != 0


def test_a_dag_that_is_not_there_names_the_pipeline(monkeypatch, capsys):
    monkeypatch.setattr(context, "airflow_api", lambda: FakeAirflow(AirflowApiError("POST", "/x", 404, "not found")))
    assert main.main(["deploy", "other"]) == 64
    assert capsys.readouterr().err.startswith("error: pipeline: Airflow has no DAG deploy_other. Add its folder")


def test_other_answers_of_airflow_are_told(monkeypatch, capsys):
    monkeypatch.setattr(context, "airflow_api", lambda: FakeAirflow(AirflowApiError("POST", "/x", 422, "from: bad")))
    assert main.main(["deploy", "other"]) == 1
    assert capsys.readouterr().err == "error: POST /x: Airflow answered 422: from: bad\n"


def test_every_form_parameter_has_an_option():
    assert {*trigger.HELP, *trigger.NEVER_ASKED} == trigger.PARAMETERS.keys()


def test_without_settings_or_stack_the_cure_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("REWIND_KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("REWIND_HOME", str(tmp_path))
    assert main.main(["resolve", "visits_converter"]) == 64
    assert "Start the stack with `make up`" in capsys.readouterr().err


def test_the_environment_wins_over_the_local_stack(tmp_path, monkeypatch):
    known = {"REWIND_HOME": str(tmp_path), "REWIND_KAFKA_BOOTSTRAP": "stack:1", "REWIND_DRIVER_MEMORY": "2g"}
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack" / "stack.json").write_text(json.dumps({"environment": known}))
    monkeypatch.setenv("REWIND_HOME", str(tmp_path))
    monkeypatch.setenv("REWIND_KAFKA_BOOTSTRAP", "mine:2")
    monkeypatch.delenv("REWIND_DRIVER_MEMORY", raising=False)
    found = context.settings()
    assert (found.bootstrap, found.driver_memory) == ("mine:2", "2g")


def test_airflow_of_the_environment_needs_user_and_password():
    with pytest.raises(RefusedError, match="REWIND_AIRFLOW_PASSWORD: is not set"):
        context.airflow_api({"REWIND_AIRFLOW_URL": "http://x", "REWIND_AIRFLOW_USER": "u"})


def test_an_error_of_several_lines_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(context, "settings", lambda: (_ for _ in ()).throw(RetryError("away\n  for long")))
    assert main.main(["status"]) == 75
    assert capsys.readouterr().err == "error: away for long\n"


@pytest.fixture
def served(registry):
    made = pointer_server.server(context.settings(), "127.0.0.1", 0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    thread.join()
    made.server_close()


def fetch(url, method="GET", **headers):
    try:
        asked = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        body = refused.read()
        return refused.code, json.loads(body) if refused.code in (404, 503) else body


def test_the_pointer_over_http(served):
    status, body = fetch(f"{served}/pointer/visits_converter")
    assert status == 200
    assert (body["job_id"], body["epoch"], body["output_topic"]) == ("visits_converter-g1", 1, "visits_converted-g1")


@pytest.mark.parametrize("path", ["/pointer/other", "/pointer/", "/", "/pointer/..%2f..%2fetc", "/pointer/a/b"])
def test_what_is_unknown_is_404(served, path):
    status, body = fetch(served + path)
    assert status == 404
    assert set(body) == {"error"}


def test_the_pointer_server_only_reads(served):
    for method in ("POST", "PUT", "DELETE"):
        assert fetch(f"{served}/pointer/visits_converter", method)[0] == 501


def test_a_registry_that_does_not_answer_is_503(tmp_path, monkeypatch):
    def away(*_):
        raise RetryError("registry: locked")

    monkeypatch.setattr(pointer_server, "resolve", away)
    assert pointer_server.answer("url", "/pointer/visits") == (503, {"error": "registry: locked"})


def test_with_a_token_file_the_pointer_server_asks_for_the_token(registry, monkeypatch, tmp_path):
    path = tmp_path / "read-token"
    monkeypatch.setenv("REWIND_READ_TOKEN_FILE", str(path))
    for text, mode, problem in (("t" * 32, 0o644, "can be read by others"), ("short", 0o600, "less than 32")):
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(RefusedError, match=f"REWIND_READ_TOKEN_FILE: .*{problem}"):
            pointer_server.server(context.settings(), "127.0.0.1", 0)
    path.write_text("t" * 32)
    made = pointer_server.server(context.settings(), "127.0.0.1", 0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{made.server_address[1]}/pointer/visits_converter"
    try:
        assert [fetch(url, **headers)[0] for headers in ({}, bearer("t" * 31), bearer("t" * 32))] == [401, 401, 200]
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_a_taken_port_is_refused(served, registry):
    port = int(served.rpartition(":")[2])
    with pytest.raises(RefusedError, match=r"--port: 127\.0\.0\.1:"):
        pointer_server.server(context.settings(), "127.0.0.1", port)
