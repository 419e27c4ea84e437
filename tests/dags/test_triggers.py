"""Which runs of other DAGs are started: by the registry, and one supervisor a stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    DagRunTriggerException,
    ErrorType,
)
from airflow.sdk.execution_time.comms import ErrorResponse
from rewind_airflow import supervision
from rewind_airflow.announce import Announce, AnnounceRollback, live_asset
from rewind_airflow.triggers import StartCandidate, StartStream, TriggerAbort, TriggerRollback
from sqlalchemy import insert, select, update

from rewind.core.errors import RefusedError
from rewind.core.horizon import Frontier
from rewind.declared import forms
from rewind.registry import generations, observation, plannings, rewinds, schema, streams, verdicts
from rewind.registry.database import writing
from rewind.registry.observation import Look


class FakeRuns:
    """Answers as Airflow does how many runs there are; `there` maps (DAG, run) to a state."""

    dag_id = "watch_streams"

    def __init__(self, there=(), paused=(), gone=()):
        self.there, self.paused, self.gone = dict(there), paused, gone

    def get_dag(self, dag_id):
        if dag_id in self.gone:
            status = self.gone[dag_id]
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))
        return SimpleNamespace(is_paused=dag_id in self.paused)

    def get_dr_count(self, dag_id, run_ids=None, states=None):
        found = {run: state for (dag, run), state in self.there.items() if dag == dag_id}
        return sum(1 for run, state in found.items() if run in (run_ids or found) and state in (states or [state]))


@pytest.fixture
def started(context):
    """Execute an operator and return what it triggers: DAG, run id and conf."""

    def execute(operator, there=()):
        context["ti"].get_dr_count = FakeRuns(there).get_dr_count
        with pytest.raises(DagRunTriggerException) as triggered:
            operator.execute(context)
        assert triggered.value.logical_date is None
        return triggered.value.trigger_dag_id, triggered.value.dag_run_id, triggered.value.conf

    return execute


def test_a_candidate_is_wished_for_recorded_and_supervised(installation, opened, started, rewind_id):
    opened()
    run = started(StartCandidate(task_id="start_candidate", pipeline="visits"))
    assert run == ("stream_visits", "visits-g2.1", {"owner": "visits-g2"})
    with writing(installation.registry_url) as connection:
        assert streams.needed(connection, "visits-g2").wish == "run"
        assert [(s.step, s.state) for s in rewinds.steps_of(connection, rewind_id)] == [("start_candidate", "done")]


def test_a_candidate_that_is_supervised_gets_no_second_supervisor(opened, context):
    opened()
    context["ti"].get_dr_count = FakeRuns({("stream_visits", "visits-g2.1"): "running"}).get_dr_count
    assert StartCandidate(task_id="start_candidate", pipeline="visits").execute(context) is None


def test_a_run_id_that_is_taken_is_not_used_again(opened, started):
    opened()
    run = started(StartCandidate(task_id="s", pipeline="visits"), {("stream_visits", "visits-g2.1"): "failed"})
    assert run[1] == "visits-g2.2"


def test_a_repair_starts_no_candidate(opened, context):
    opened("repair")
    with pytest.raises(AirflowSkipException):
        StartCandidate(task_id="start_candidate", pipeline="visits").execute(context)


def test_a_deploy_starts_the_live_job(opened, started):
    opened()
    assert started(StartStream(task_id="start_stream", pipeline="visits"))[1] == "visits-g1.1"


def test_a_pipeline_without_live_job_starts_nothing(installation, context):
    with pytest.raises(AirflowFailException, match="visits has no live job: deploy it first"):
        StartStream(task_id="start_stream", pipeline="visits").execute(context)


def test_who_watches_starts_what_should_run_and_has_no_supervisor(installation, context):
    kinds = {"mirror-clicks": streams.MIRROR, "mirror-other": streams.MIRROR}
    with writing(installation.registry_url) as connection:
        for owner in ("mirror-clicks", "mirror-other", "visits-g1", "visits-g2", "visits-g3", "visits-g4"):
            streams.wish(connection, owner, kinds.get(owner, streams.GENERATION), streams.RUN)
        streams.wish(connection, "visits-g3", streams.GENERATION, streams.DRAIN)
        for _ in range(streams.MOST_FAILURES):
            streams.count_failure(connection, "visits-g4", "boom")
        for _ in range(3):
            streams.count_start(connection, "visits-g1")
    there = {
        ("mirror_other", "by hand"): "running",
        ("mirror_clicks", "mirror-clicks.1"): "success",
        ("stream_visits", "visits-g1.1"): "failed",
        ("stream_visits", "visits-g2.1"): "queued",
    }
    assert supervision.unsupervised(**{**context, "ti": FakeRuns(there)}) == [
        {"trigger_dag_id": "mirror_clicks", "trigger_run_id": "mirror-clicks.2", "conf": {}},
        {"trigger_dag_id": "stream_visits", "trigger_run_id": "visits-g1.4", "conf": {"owner": "visits-g1"}},
    ]


@pytest.fixture
def watch(context):
    """Look once, as `watch_streams` does each minute, at what Airflow has."""
    return lambda runs: supervision.unsupervised(**{**context, "ti": runs})


@pytest.fixture
def two_streams(installation, monkeypatch):
    """Streams of two pipelines that should run, one of them with a standby; return what was told and what is kept."""
    told = []
    monkeypatch.setattr(supervision.notify, "tell", lambda _, kind, text: told.append((kind, text)))
    with writing(installation.registry_url) as connection:
        for owner in ("carts-g1", "visits-g1", "visits-g2"):
            streams.wish(connection, owner, streams.GENERATION, streams.RUN)

    def kept():
        with writing(installation.registry_url) as connection:
            return {stream.owner: stream.paused_dag for stream in streams.all_of(connection)}

    return told, kept


PAUSED = (
    "visits-g1, visits-g2: the DAG stream_visits is paused, so nobody starts the driver when it ends: switch it on in "
    "Airflow's list of DAGs, or run `airflow dags unpause stream_visits`"
)


def test_a_paused_dag_is_told_once_and_kept_until_it_is_switched_on(two_streams, watch):
    told, kept = two_streams
    # Its run is said to run, and no task of it is ever scheduled.
    there = {("stream_visits", "visits-g1.1"): "running"}
    carts = {"trigger_dag_id": "stream_carts", "trigger_run_id": "carts-g1.1", "conf": {"owner": "carts-g1"}}
    for _ in range(2):
        assert watch(FakeRuns(there, {"stream_visits"})) == [carts]
        assert told == [("paused", PAUSED)]
        assert kept() == {"carts-g1": None, "visits-g1": "stream_visits", "visits-g2": "stream_visits"}
    assert [run["trigger_run_id"] for run in watch(FakeRuns(there))] == ["carts-g1.1", "visits-g2.1"]
    assert kept() == {"carts-g1": None, "visits-g1": None, "visits-g2": None}
    watch(FakeRuns(there, {"stream_visits"}))
    assert told == [("paused", PAUSED)] * 2, "it was paused anew"


def test_a_stream_that_comes_to_a_paused_dag_is_kept_and_not_told_again(two_streams, watch, installation):
    told, kept = two_streams
    watch(FakeRuns((), {"stream_visits"}))
    with writing(installation.registry_url) as connection:
        streams.wish(connection, "visits-g3", streams.GENERATION, streams.RUN)
    watch(FakeRuns((), {"stream_visits"}))
    assert (len(told), kept()["visits-g3"]) == (1, "stream_visits")


def test_a_dag_that_is_gone_is_not_paused_and_an_airflow_that_is_away_says_nothing(two_streams, watch):
    told, kept = two_streams
    watch(FakeRuns((), {"stream_visits"}))
    with pytest.raises(AirflowRuntimeError):
        watch(FakeRuns((), (), {"stream_visits": 503}))
    assert kept()["visits-g1"] == "stream_visits"
    watch(FakeRuns((), (), {"stream_visits": 404}))
    assert (kept()["visits-g1"], len(told)) == (None, 1)


def test_wishing_for_a_mirror_again_forgives_it_nothing(installation, context):
    supervision.wish_mirror("clicks", **context)
    with writing(installation.registry_url) as connection:
        streams.count_failure(connection, "mirror-clicks", "boom")
    supervision.wish_mirror("clicks", **context)
    with writing(installation.registry_url) as connection:
        assert streams.needed(connection, "mirror-clicks").failures == 1
        streams.wish(connection, "mirror-clicks", streams.MIRROR, streams.DRAIN)
    supervision.wish_mirror("clicks", **context)
    with writing(installation.registry_url) as connection:
        assert streams.needed(connection, "mirror-clicks").wish == "run"


def test_a_failed_rewind_is_aborted(opened, started, rewind_id):
    opened()
    dag, _, conf = started(TriggerAbort(task_id="abort", pipeline="visits"))
    assert (dag, conf) == ("abort_visits", {"rewind_id": rewind_id, "reason": "a step of run r1 failed"})


def test_the_reason_of_a_rejection_is_handed_on(installation, opened, judged, started, rewind_id):
    opened()
    judged("pass")
    with writing(installation.registry_url) as connection:
        verdicts.answer(connection, rewind_id, "reject", "ada", "too many")
    conf = started(TriggerAbort(task_id="abort", pipeline="visits"))[2]
    assert conf["reason"] == "rejected by ada: too many"


@pytest.mark.parametrize("trigger", [TriggerAbort, TriggerRollback])
def test_a_run_that_opened_no_rewind_takes_nothing_back(installation, context, trigger):
    with pytest.raises(AirflowSkipException, match="was never opened"):
        trigger(task_id="back", pipeline="visits").execute(context)


def test_a_run_that_opened_no_rewind_is_no_longer_planning(installation, context, rewind_id):
    with writing(installation.registry_url) as connection:
        plannings.ask(connection, rewind_id, "visits", "", dry_run=False)
        attempt = rewinds.begin_step(connection, rewind_id, "plan")
        rewinds.end_step(connection, rewind_id, "plan", attempt, "failed", {"error": "RefusedError: from: is bad"})
        assert [one.id for one in plannings.being_made(connection)] == [rewind_id]
    with pytest.raises(AirflowSkipException, match="was never opened"):
        TriggerAbort(task_id="abort", pipeline="visits").execute(context)
    with writing(installation.registry_url) as connection:
        assert plannings.being_made(connection) == []
        with pytest.raises(RefusedError, match=f"{rewind_id} was not planned: RefusedError: from: is bad"):
            rewinds.read(connection, rewind_id)


@pytest.mark.parametrize("moved", ["pointer", "fact"])
def test_a_switched_rewind_is_never_aborted(installation, opened, context, rewind_id, moved):
    plan = opened()
    with writing(installation.registry_url) as connection:
        if moved == "pointer":
            generations.switch(connection, "visits", "visits-g1", plan.job_id, 1, timedelta(hours=1))
        else:
            rewinds.fix(connection, rewind_id, "cut_over", {"epoch": 2})
    with pytest.raises(AirflowSkipException, match="the pointer has moved to visits-g2"):
        TriggerAbort(task_id="abort", pipeline="visits").execute(context)


def observed(installation, rewind_id, **differences):
    with writing(installation.registry_url) as connection:
        look = Look(timedelta(minutes=1), Frontier({0: 10}), {"rows": 5}, differences, [])
        observation.record(connection, rewind_id, 1, look)


def test_differences_start_one_rollback_a_rewind_when_asked_to(installation, opened, started, rewind_id):
    opened(on_difference="roll_back")
    observed(installation, rewind_id, changed=2, missing=1)
    task = TriggerRollback(task_id="roll_back", pipeline="visits")
    assert task.skip_when_already_exists
    reason = f"{rewind_id}: 5 rows compared since the switch, DIFFERENCES: 2 changed, 1 missing"
    conf = {"dry_run": False, "to": "visits-g1", "reason": reason}
    assert started(task) == ("rollback_visits", f"observed.{rewind_id}", conf)
    assert forms.checked(conf, forms.ROLLBACK, "rollback_visits")["dry_run"] is False


@pytest.mark.parametrize(
    ("asked", "differences", "state"),
    [("tell", {"changed": 2}, "active"), ("roll_back", {}, "active"), ("roll_back", {"changed": 2}, "rolled_back")],
)
def test_otherwise_nothing_is_rolled_back(installation, opened, context, rewind_id, asked, differences, state):
    opened(on_difference=asked)
    observed(installation, rewind_id, **differences)
    with writing(installation.registry_url) as connection:
        if state != "active":
            rewinds.close(connection, rewind_id, state)
    with pytest.raises(AirflowSkipException):
        TriggerRollback(task_id="roll_back", pipeline="visits").execute(context)


@pytest.fixture
def announcing(context, installation, opened):
    """A switched rewind whose epoch 2 is to be announced, and the task that does it."""
    opened()
    with writing(installation.registry_url) as connection:
        connection.execute(insert(schema.announcements).values(pipeline="visits", epoch=2, body={}))
    context["outlet_events"] = {live_asset("visits"): SimpleNamespace(extra={})}
    return Announce(task_id="announce", pipeline="visits")


class Events(list):
    """Past events as Airflow hands them out."""

    def ascending(self, _):
        return self

    def limit(self, _):
        return self


def emitted(context):
    (accessor,) = context["outlet_events"].values()
    return accessor.extra


def test_a_switch_is_announced_with_its_epoch(announcing, context, installation):
    announcing.execute(context)
    assert emitted(context) == {"job_id": "visits-g2", "epoch": 2, "output_topic": "visits_out-g2"}
    with writing(installation.registry_url) as connection:
        assert connection.execute(select(schema.announcements.c.asset_at)).scalar_one() is not None


def test_a_switch_that_compared_nothing_is_announced_so(announcing, context, installation):
    with writing(installation.registry_url) as connection:
        connection.execute(update(schema.announcements).values(body={"not_compared": "live is dead"}))
    announcing.execute(context)
    assert emitted(context) == {
        "job_id": "visits-g2",
        "epoch": 2,
        "output_topic": "visits_out-g2",
        "not_compared": "live is dead",
    }


def test_a_clear_does_not_announce_again(announcing, context):
    announcing.execute(context)
    context["inlet_events"] = {announcing.asset: Events([SimpleNamespace(extra={"epoch": 2})])}
    with pytest.raises(AirflowSkipException, match="epoch 2 of visits was announced"):
        announcing.execute(context)


def test_a_task_that_died_before_it_announced_does_so_in_its_retry(announcing, context):
    announcing.execute(context)
    emitted(context).clear()
    context["inlet_events"] = {announcing.asset: Events([SimpleNamespace(extra={"epoch": 1})])}
    announcing.execute(context)
    assert emitted(context)["epoch"] == 2


def test_a_rollback_is_announced_with_what_it_went_back_to(context, installation, opened):
    opened()
    context["params"] = {"dry_run": False}
    context["outlet_events"] = {live_asset("visits"): SimpleNamespace(extra={})}
    task = AnnounceRollback(task_id="announce", pipeline="visits")
    with pytest.raises(AirflowFailException, match="the registry has no rollback rb-"):
        task.execute(context)
    rollback_id = forms.rollback_id(context["ti"].dag_id, context["ti"].run_id)
    with writing(installation.registry_url) as connection:
        connection.execute(insert(schema.announcements).values(pipeline="visits", epoch=3, body={}))
        rewinds.fix(connection, rollback_id, "rollback", {"epoch": 3, "to": "visits-g1"})
    task.execute(context)
    assert emitted(context) == {"job_id": "visits-g1", "epoch": 3, "output_topic": "visits_out-g1"}
    context["params"] = {"dry_run": True}
    with pytest.raises(AirflowSkipException, match="a dry run announces nothing"):
        task.execute(context)


def test_without_a_switch_there_is_nothing_to_announce(context, opened):
    opened()
    with pytest.raises(AirflowFailException, match="no epoch 2 of visits to announce"):
        Announce(task_id="announce", pipeline="visits").execute(context)


def test_of_a_shared_output_the_event_names_what_readers_read(context, installation, opened, monkeypatch):
    plan = opened()
    shared = replace(plan, config={**plan.config, "shared": True})
    monkeypatch.setattr(rewinds, "read_plan", lambda *_: shared)
    frozen = {"config": {**shared.config, "output_topic": "visits_out"}}
    rollback_id = forms.rollback_id(context["ti"].dag_id, context["ti"].run_id)
    with writing(installation.registry_url) as connection:
        connection.execute(update(schema.generations).values(frozen=frozen))
        for epoch in (2, 3):
            connection.execute(insert(schema.announcements).values(pipeline="visits", epoch=epoch, body={}))
        rewinds.fix(connection, rollback_id, "rollback", {"epoch": 3, "to": "visits-g1"})
    context["params"] = {"dry_run": False}
    told = []
    for operator in (Announce, AnnounceRollback):
        context["outlet_events"] = {live_asset("visits"): SimpleNamespace(extra={})}
        operator(task_id="announce", pipeline="visits").execute(context)
        told.append(emitted(context)["output_topic"])
    assert told == [f"{plan.config['output_topic']}-shared", "visits_out-shared"]
