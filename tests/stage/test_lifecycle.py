"""The main job under a real scheduler: from the form over a dry run and its plan to collected garbage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewind.airflow_api.client import AirflowApiError
from rewind.declared import forms
from rewind.registry import generations, rewinds
from rewind.runtime import announce
from rewind.runtime.kafka.broker import Broker
from rewind.views.pointer import resolve
from tests.scenarios.airflow_cases import c28_collection_cleared, supervisor_lost
from tests.scenarios.airflow_life import visit
from tests.support.stage import Stage
from tests.support.stub_stage import StubStage, stub_stage
from tests.support.warm import WarmJvm
from tests.support.workshop import wait_for

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(1800)]

RULE = "candidate.visited_page = upper(live.visited_page)"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[StubStage]:
    compare = {"expected": [{"column": "visited_page", "rule": RULE}]}
    with stub_stage(tmp_path_factory.mktemp("lifecycle") / "home", jars, "staged", 2, compare=compare) as made:
        yield made


@pytest.mark.parametrize(
    ("conf", "field"),
    [
        ({"from": "abc"}, "from"),
        ({"overrides": {"max_offsets": -1}}, "max_offsets"),
        ({"grace": ""}, "grace"),
        ({"apply_plan": "j" * 300}, "apply_plan"),
        ({"dry_run": "perhaps"}, "dry_run"),
    ],
)
def test_c39_a_bad_value_is_refused_in_the_form_and_makes_no_run(stage: Stage, conf: dict, field: str) -> None:
    before = len(stage.api.dag_runs(stage.rewind_dag))
    with pytest.raises(AirflowApiError) as refused:
        stage.api.trigger(stage.rewind_dag, conf)
    assert 400 <= refused.value.status < 500
    assert field in refused.value.detail
    assert len(stage.api.dag_runs(stage.rewind_dag)) == before


@pytest.mark.acceptance
@pytest.mark.shows("safety", c39_what_the_first_task_alone_can_know="failed there, nothing made")
def test_c39_what_only_the_first_task_can_know_fails_there_without_side_effect(stage: Stage) -> None:
    run_id, rewind_id = stage.begin(**{"from": '{"staged-in":{"0":0}}'})
    assert stage.ended(stage.rewind_dag, run_id) == "failed"
    assert "pipeline: staged has no live generation" in stage.failures(stage.rewind_dag, run_id)
    found, steps = stage.rewind(rewind_id)
    assert found is None
    assert [(s.step, s.state) for s in steps] == [("plan", "failed")]
    assert Broker(stage.shop.settings).topics() == [stage.shop.topic]


@pytest.mark.acceptance
@pytest.mark.shows("truth", p10_on_a_scheduler="red first tasks, nothing changed")
def test_p10_a_key_that_is_not_known_ends_the_run_in_its_first_task(stage: Stage) -> None:
    """By REST a conf may be what it is; the form sends every parameter, with what was left empty as null."""
    topics, unknown, aborted = stage.shop_topics(), "does not know", {"rewind_id": "rw-0123456789"}
    asked: list[tuple[str, dict, str]] = [
        ("collect_garbage", {"dryrun": True}, f'{unknown} "dryrun". Did you mean "dry_run"?'),
        ("deploy_staged", {"form": "latest"}, f'{unknown} "form". Did you mean "from"?'),
        ("rewind_staged", {"dry-run": False}, f'{unknown} "dry-run". Did you mean "dry_run"?'),
        ("rewind_staged", {"dry_run": False, "reason": ""}, "reason: is empty"),
        (
            "rewind_staged",
            {"from": "2025-02-30T00:00:00Z"},
            "from: '2025-02-30T00:00:00Z' is not an ISO-8601 timestamp",
        ),
        ("abort_staged", {**aborted, "raeson": "x"}, f'{unknown} "raeson". Did you mean "reason"?'),
        ("abort_staged", {**aborted, "reason": " "}, "reason: is empty"),
    ]
    runs = []
    for dag_id, conf, told in asked:
        opened = {name: schema["default"] for name, schema in forms.form_of(dag_id).items() if "default" in schema}
        runs += [(dag_id, stage.start(dag_id, sent), told) for sent in (conf, {**opened, **conf})]
    for dag_id, run_id, told in runs:
        assert stage.ended(dag_id, run_id) == "failed"
        # A refusal is not tried again.
        ((tries, raised),) = stage.raised(dag_id, run_id)
        assert (tries, json.dumps(told)[1:-1] in raised) == (1, True), raised
        assert stage.rewind(forms.rewind_id(dag_id, run_id)) == (None, [])
    with stage.shop.registry() as connection:
        assert generations.all_of(connection, "staged") == []
    assert stage.shop_topics() == topics


@pytest.mark.shows("truth", p10_by_rest="no run is made")
def test_p10_a_wrong_type_and_an_empty_text_make_no_run(stage: Stage) -> None:
    asked: list[tuple[str, dict, str]] = [
        ("collect_garbage", {"dry_run": "true"}, "dry_run"),
        ("collect_garbage", {"dry_run": ""}, "dry_run"),
        ("deploy_staged", {"from": ""}, "from"),
        ("deploy_staged", {"from": 5}, "from"),
        ("rewind_staged", {"from": "2014-01-01"}, "from"),
        ("rewind_staged", {"from": ""}, "from"),
        ("abort_staged", {"rewind_id": ""}, "rewind_id"),
        ("abort_staged", {"rewind_id": 5}, "rewind_id"),
        ("abort_staged", {}, "rewind_id"),
    ]
    for dag_id, conf, field in asked:
        before = len(stage.api.dag_runs(dag_id))
        with pytest.raises(AirflowApiError) as refused:
            stage.api.trigger(dag_id, conf)
        assert 400 <= refused.value.status < 500
        assert field in refused.value.detail
        assert len(stage.api.dag_runs(dag_id)) == before


def test_a_rewind_from_form_to_collected_garbage(stage: StubStage, warm_jvm: WarmJvm) -> None:
    shop = stage.shop
    for p in range(2):
        shop.produce(*(visit(n) for n in range(150)), partition=p)
    live = stage.deploy()
    assert live == "staged-g1"
    shop.edit_logic('F.col("page").alias', 'F.upper("page").alias')

    dry = stage.start(stage.rewind_dag, {"observe": "PT5S", "grace": "PT20S"})
    stage.succeeded(stage.rewind_dag, dry)
    states = {t["task_id"]: t["state"] for t in stage.api.task_instances(stage.rewind_dag, dry)}
    assert (states["plan"], states["spin_up"]) == ("success", "skipped")

    plan_id = stage.plan_of(dry)
    with shop.registry() as connection:
        assert rewinds.active_of(connection, "staged") is None
    assert "staged-out-g2" not in Broker(shop.settings).topics()

    # Deployed and planned by real submits; from here on it is Airflow's side that counts, and the streams' drivers.
    stage.stub.warm(warm_jvm.gateway)
    run_id, rewind_id = stage.begin(apply_plan=plan_id)
    wait_for("the rewind being active", lambda: stage.rewind(rewind_id)[0] is not None)
    second, _ = stage.begin(same_code=True)
    assert stage.ended(stage.rewind_dag, second) == "failed"
    assert f"rewind {rewind_id} of staged is active" in stage.failures(stage.rewind_dag, second)

    stage.answer(run_id)
    stage.succeeded(stage.rewind_dag, run_id)
    stage.as_planned(run_id, rewind_id)
    found, steps = stage.rewind(rewind_id)
    assert found is not None
    assert (found.state, found.plan_id, found.job_id) == ("finished", plan_id, "staged-g2")
    last = {s.step: s.state for s in steps}
    wanted = (
        "plan",
        "spin_up",
        "backfill",
        "start_candidate",
        "catch_up",
        "validate",
        "approve",
        "cut_over",
        "observe",
    )
    assert last == dict.fromkeys(wanted, "done")
    counts = shop.verdict(rewind_id).counts
    assert {name: count for name, count in counts.items() if count} == {"rows": 300, "expected": 300}

    pointed = resolve("staged", shop.settings.registry_url)
    assert (pointed.job_id, pointed.epoch, pointed.output_topic) == ("staged-g2", 2, "staged-out-g2")
    control = [(r.key, json.loads(r.value)["epoch"]) for r in shop.read(announce.TOPIC)]
    assert control[-1] == (b"staged", 2)
    pages = {json.loads(r.value)["visited_page"] for r in shop.read("staged-out-g2") if r.value}
    assert pages == {"HOME"}


def test_then_a_release_without_history_and_the_old_ones_collected(stage: StubStage) -> None:
    shop = stage.shop
    run_id, rewind_id = stage.begin(**{"from": "live"}, same_code=True, auto_approve=True, grace="PT1H")
    # A release compares what comes after its handoff; over nothing there is no pass.
    stage.handed_off(rewind_id)
    shop.produce(visit(500), visit(501))
    stage.succeeded(stage.rewind_dag, run_id)
    stage.as_planned(run_id, rewind_id)
    assert stage.live() == "staged-g3"
    stage.run("collect_garbage", {"dry_run": False})

    def states() -> dict[str, str]:
        with shop.registry() as connection:
            return {g.job_id: g.state for g in generations.all_of(connection, "staged")}

    assert states()["staged-g1"] == "collected"
    topics = Broker(shop.settings).topics()
    assert [t for t in topics if t.startswith("staged-out-g1")] == []
    assert "staged-out-g3" in topics
    assert not (shop.settings.generations / "staged-g1").exists()
    assert Broker(shop.settings).group_offsets("staged-g1", shop.topic) == {}


def test_then_the_release_is_rolled_back(stage: Stage) -> None:
    dry = stage.run("rollback_staged", {})
    assert stage.live() == "staged-g3"
    ran = {t["task_id"]: t["state"] for t in stage.api.task_instances("rollback_staged", dry)}
    assert ran == {"rollback": "success", "announce": "skipped"}

    stage.run("rollback_staged", {"dry_run": False, "reason": "wrong rates"})
    pointed = resolve("staged", stage.shop.settings.registry_url)
    assert (pointed.job_id, pointed.epoch, pointed.output_topic) == ("staged-g2", 4, "staged-out-g2")
    control = [(r.key, json.loads(r.value)["epoch"]) for r in stage.shop.read(announce.TOPIC)]
    assert control[-1] == (b"staged", 4)
    with stage.shop.registry() as connection:
        assert generations.read(connection, "staged-g3").state == "standby"
    assert stage.shop.holder("staged-g2") is not None
    assert stage.shop.holder("staged-g3") is not None


def test_a_supervisor_that_is_deleted_leaves_its_driver(stage: Stage) -> None:
    supervisor_lost(stage, stage.live(), "deleted")


def test_c28_a_collection_that_is_cleared_finds_nothing_more(stage: Stage) -> None:
    c28_collection_cleared(stage, times=1)
