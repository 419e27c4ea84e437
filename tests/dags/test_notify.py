"""Who is told of what: a standard notifier, chosen in the environment."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.exceptions import TaskAwaitingInput as Parked
from rewind_airflow import links, notify, run, waits
from rewind_airflow.approval import Approve
from rewind_airflow.waits import Observe, Supervise

from rewind.core.errors import RefusedError
from rewind.core.horizon import Frontier
from rewind.registry import observation
from rewind.registry.database import writing
from rewind.runtime.drivers import supervise
from tests.support.recorder import Recorder

MESSAGE = "{{ rewind_event }} | {{ rewind_text }} | {{ rewind_link }}"


@pytest.fixture
def told(monkeypatch):
    """What the chosen notifier was told."""
    monkeypatch.setattr(Recorder, "told", [])
    monkeypatch.setenv("REWIND_NOTIFIER", "tests.support.recorder.Recorder")
    monkeypatch.setenv("REWIND_NOTIFIER_ARGS", json.dumps({"message": MESSAGE}))
    monkeypatch.setattr(links.conf, "get", lambda *_, **__: "http://airflow.test/")
    return Recorder.told


def page(rewind_id):
    return f"http://airflow.test/rewind/#rewind/{rewind_id}"


def test_a_task_that_failed_for_good(context, told, rewind_id):
    context["ti"].task_id = "backfill"
    notify.on_failure(context | {"exception": AirflowFailException("a gap at offset 7")})
    assert told == [f"failure | backfill of rewind_visits failed: a gap at offset 7 | {page(rewind_id)}"]


def test_a_stream_that_is_set_aside(context, told, installation, monkeypatch):
    seen = SimpleNamespace(state=supervise.QUARANTINED, message="visits-g1: quarantined after 5 failures; exit code 1")
    monkeypatch.setattr(supervise, "look", lambda *_: seen)
    monkeypatch.setattr(waits.sights, "of_stream", lambda *_: "")
    context["ti"].dag_id, context["ti"].task_id = "stream_visits", "supervise"
    with pytest.raises(AirflowFailException) as raised:
        Supervise(task_id="supervise", owner="visits-g1").over(context, installation)
    notify.on_failure(context | {"exception": raised.value})
    what = "supervise of stream_visits failed: visits-g1: quarantined after 5 failures; exit code 1"
    assert told == [f"quarantine | {what} | http://airflow.test/rewind/"]


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_a_verdict_that_waits_for_a_person(context, told, opened, judged, rewind_id, monkeypatch, verdict):
    opened()
    judged(verdict)
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **_: None)
    gate, context["task_instance"] = Approve(task_id="approve", pipeline="visits"), context["ti"]
    context["ti"].id = "ti"
    with pytest.raises(Parked):
        gate.execute(context)
    assert told == [f"approval | rewind {rewind_id} waits for an answer: verdict {verdict} | {page(rewind_id)}"]
    assert f"[The page of this rewind]({page(rewind_id)})" in gate.body


def test_a_pass_that_needs_no_person_is_not_told(context, told, opened, judged):
    opened(auto_approve=True)
    judged("pass")
    Approve(task_id="approve", pipeline="visits").execute(context)
    assert told == []


def look(installation, rewind_id, attempt, **differences):
    counts = {"rows": 9, **differences}
    with writing(installation.registry_url) as connection:
        made = observation.Look(waits.timedelta(seconds=attempt), Frontier({0: 1}), counts, differences, [])
        observation.record(connection, rewind_id, attempt, made)
        return observation.read(connection, rewind_id)


def test_differences_since_the_switch_are_told_once(context, told, opened, installation, rewind_id):
    opened()
    task = Observe(task_id="observe")
    clean = look(installation, rewind_id, 1)
    task._tell_of_drift(context, installation, clean)
    assert told == []
    drifted = look(installation, rewind_id, 2, missing=2)
    task._tell_of_drift(context, installation, clean)
    task._tell_of_drift(context, installation, drifted)
    assert told == [f"drift | 18 rows compared since the switch, DIFFERENCES: 2 missing | {page(rewind_id)}"]


def test_a_rollback_that_differences_ask_for_is_a_drift(context, told):
    context["ti"].task_id = "observe"
    notify.on_failure(context | {"exception": notify.Drifted("2 missing")})
    assert [line.partition(" ")[0] for line in told] == ["drift"]


def test_without_a_notifier_nobody_is_told(context, monkeypatch):
    monkeypatch.delenv("REWIND_NOTIFIER", raising=False)
    assert notify.chosen({}) is None
    notify.tell(context, notify.FAILURE, "x")


@pytest.mark.parametrize("path", ["tests.support.recorder.Broken", "tests.support.recorder.Missing"])
def test_a_notification_that_does_not_go_out_fails_nothing(context, monkeypatch, caplog, path):
    monkeypatch.setenv("REWIND_NOTIFIER", path)
    notify.tell(context, notify.FAILURE, "boom")
    assert "not notified of failure: boom" in caplog.text


@pytest.mark.parametrize(
    ("path", "arguments", "problem"),
    [
        ("nowhere.at.All", "{}", "cannot be made"),
        ("tests.support.recorder.Missing", "{}", "cannot be made"),
        ("tests.support.recorder.Recorder", "{}", "cannot be made"),
        ("tests.support.recorder.Recorder", "no json", "cannot be made"),
        ("Recorder", "{}", "cannot be made"),
        ("collections.OrderedDict", "{}", "is no notifier"),
    ],
)
def test_one_that_cannot_be_made_is_refused(path, arguments, problem):
    with pytest.raises(RefusedError, match=problem):
        notify.chosen({"REWIND_NOTIFIER": path, "REWIND_NOTIFIER_ARGS": arguments})


def test_the_id_in_the_link_is_the_runs(context, told):
    assert links.page(context["ti"]) == page(run.rewind_id(context))
    key = TaskInstanceKey(dag_id="rewind_visits", task_id="backfill", run_id="r1", try_number=1, map_index=-1)
    link = links.PageLink()
    assert (link.name, link.get_link(None, ti_key=key)) == ("Rewind page", page(run.rewind_id(context)))
