"""The demo follows a rewind: what it says, when it answers, how it ends."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
from rich.console import Console

from examples.demo import follow, scenario, summary
from examples.demo.errors import DemoError
from examples.demo.follow import Follower
from examples.demo.scenario import Story
from examples.demo.world import Names
from rewind.core import lifecycle
from rewind.core.errors import RetryError
from rewind.core.planning.plan import Plan, Request
from rewind.core.planning.stages import REWIND, SHAPES
from rewind.local.voice import Voice
from rewind.local.waiting import StuckError, Waiting
from rewind.registry.verdicts import Approval, Verdict
from rewind.views.status import PipelineView, Status
from rewind.views.status_rewinds import RewindView
from rewind.views.status_steps import StepView

AT = datetime.fromisoformat("2025-09-04T12:00")
PLAN = Plan(
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
    config={},
    bundle="b1",
    output_schema="a STRING",
    output_topic="visits_converted-g2",
    dead_letter_topic="visits_converted-g2-dead",
)
PASS = Verdict(1, 1, "pass", {0: 0}, {0: 9}, {"rows": 9, "equal": 8, "expected": 1, "missing": 0}, [], "", AT)

APPROVED = Approval(1, "approve", "ada", "")


def view(state=lifecycle.ACTIVE, verdict=None, approval=None, **steps):
    shown = tuple(StepView(name, *steps.get(name, ("pending",))) for name in SHAPES[REWIND].steps)
    ids = {"id": "rw-1", "state": state, "job_id": PLAN.job_id, "live_job_id": PLAN.live_job_id, "reason": ""}
    times = {"created_at": AT, "ended_at": None}
    rest = {"plan": PLAN, "handoff": {0: 7}, "backfill": None, "approval": approval, "waits": ""}
    return RewindView(**ids, **times, **rest, steps=shown, verdict=verdict)


class FakeWorld:
    """A world in which each look sees the next of some views; the last one ends the run."""

    rewind_dag = "rewind_visits_converter"
    names = Names("visits_converter", "visits", "visits_converted")

    def __init__(self, *views, pending=True, for_ever=False):
        self.views, self.api, self.pending, self.answers = list(views), self, pending, []
        self.for_ever = for_ever
        self.console = Console(file=io.StringIO(), width=200)
        self.settings = SimpleNamespace(bootstrap="kafka:1")
        self.now, self.submitted = 0.0, []
        self.waits = Waiting(Voice(self.console, lambda: self.now), clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds):
        self.now += seconds

    def submits(self):
        return self.submitted

    def status(self):
        found = self.views.pop(0) if len(self.views) > 1 or not self.for_ever else self.views[0]
        if isinstance(found, Exception):
            raise found
        shown = () if found is None else (found,)
        return Status(AT, True, (), (PipelineView("visits_converter", True, rewinds=shown),), ())

    def run_ended(self, dag_id, run_id):
        assert (dag_id, run_id) == ("rewind_visits_converter", "run-1")
        return not self.views

    def hitl_pending(self, dag_id, run_id):
        return [{"task_instance": {"task_id": "approve"}}] if self.pending else []

    def hitl_answer(self, *answer):
        self.answers.append(answer)

    def said(self):
        return [line.strip() for line in self.console.file.getvalue().splitlines()]


def test_a_rewind_is_followed_to_its_end_and_answered_once():
    judged = {"validate": ("done", 1, 9.5), "approve": ("running", 1, 0.5)}
    views = [
        None,
        RetryError("busy"),
        view(plan=("running", 1, 1.0)),
        view(verdict=PASS, **judged),
        view(verdict=PASS, approval=APPROVED, **judged),
        view(lifecycle.FINISHED, PASS, APPROVED, validate=("done", 1, 9.5), approve=("done", 1, 2.0)),
    ]
    world = FakeWorld(*views)
    ended = Follower(world, "run-1", "rw-1").to_the_end()
    assert ended.state == lifecycle.FINISHED
    assert world.answers == [("rewind_visits_converter", "run-1", "approve", ["Approve"])]
    assert world.said() == [
        "plan running",
        "validate done after 9.5 s",
        "approve running",
        "approve answered over REST: Approve",
        "approve done after 2.0 s",
    ]


def test_an_answer_that_airflow_lost_is_given_again():
    judged = {"validate": ("done", 1, 9.5), "approve": ("running", 1, 0.5)}
    ended = view(lifecycle.FINISHED, PASS, APPROVED, validate=("done", 1, 9.5), approve=("done", 1, 2.0))
    world = FakeWorld(view(verdict=PASS, **judged), view(verdict=PASS, **judged), ended)
    Follower(world, "run-1", "rw-1").to_the_end()
    assert len(world.answers) == 2


def test_a_failed_verdict_is_not_approved():
    failed = replace(PASS, verdict="fail", reason="1 missing", counts={"missing": 1})
    world = FakeWorld(view(verdict=failed, validate=("done", 1, 1.0)), view())
    with pytest.raises(DemoError, match=r"the verdict is fail \(1 missing\): \{'missing': 1\}"):
        Follower(world, "run-1", "rw-1").to_the_end()
    assert world.answers == []


def test_following_fails_when_nothing_of_the_rewind_moves():
    world = FakeWorld(view(backfill=("running", 1, 1.0)), for_ever=True)
    with pytest.raises(StuckError, match=r"Waited for rewind rw-1 to end: nothing has moved for 90 s \(backfill\)"):
        Follower(world, "run-1", "rw-1").to_the_end()
    assert world.now == 90


def test_without_a_terminal_the_step_that_runs_is_told_every_few_seconds():
    world = FakeWorld(view(plan=("running", 1, 1.0)), for_ever=True)
    with pytest.raises(StuckError):
        Follower(world, "run-1", "rw-1").to_the_end()
    assert world.said()[:3] == [
        "plan running",
        "waiting for rewind rw-1 to end: plan, 5 s",
        "waiting for rewind rw-1 to end: plan, 10 s",
    ]


def job(job_id, *ends):
    return SimpleNamespace(job_id=job_id, position=dict(enumerate(ends)))


def test_a_candidate_moves_a_rewind_by_its_position_only_while_it_catches_up():
    at, later = (SimpleNamespace(jobs=(job("visits_converter-g2", n), job("visits_converter-g1", n))) for n in (5, 6))
    catching_up, judged = view(catch_up=("running", 1, 1.0)), view(validate=("running", 1, 1.0))
    assert follow.marks(catching_up, at) != follow.marks(catching_up, later)
    assert follow.marks(judged, at) == follow.marks(judged, later)
    assert follow.marks(judged, at) != follow.marks(view(validate=("running", 2, 1.0)), at)


KEYS = [
    "bootstrap",
    "pipeline",
    "source_topic",
    "mirror_path",
    "rewind_id",
    "range",
    "handoff",
    "live_before",
    "live_after",
    "verdict",
    "counts",
    "steps",
    "deleted",
    "seconds",
]


def told_world(tmp_path):
    world = FakeWorld()
    world.folder = tmp_path
    world.settings = SimpleNamespace(
        bootstrap="kafka:1", mirrors=tmp_path / "mirror", generations=tmp_path / "generations"
    )
    return world


def test_the_summary_has_exactly_these_keys_even_when_nothing_happened(tmp_path):
    body = summary.body(told_world(tmp_path), Story(), None)
    assert list(body) == KEYS
    assert (body["verdict"], body["handoff"], body["range"], body["steps"]) == (None, None, None, [])


def test_the_summary_of_a_rewind(tmp_path):
    story = Story(plan=PLAN, rewind_id="rw-1")
    story.rewind = view(lifecycle.FINISHED, PASS, plan=("done", 1, 2.5))
    story.live_before = scenario.Resolved(
        "visits_converter", "visits_converter-g1", 1, "out-g1", "out-g1-dead", "id", AT
    )
    body = summary.body(told_world(tmp_path), story, None)
    assert body["range"] == {"start": {"visits": {"0": 0}}, "end": {"visits": {"0": 9}}}
    assert body["handoff"] == {"visits": {"0": 7}}
    assert body["live_before"] == {
        "job_id": "visits_converter-g1",
        "output_topic": "out-g1",
        "dead_letter_topic": "out-g1-dead",
        "checkpoint": str(tmp_path / "generations" / "visits_converter-g1" / "checkpoint"),
        "epoch": 1,
    }
    assert (body["verdict"], body["counts"]) == ("pass", PASS.counts)
    assert body["steps"][0] == {"name": "plan", "state": "done", "seconds": 2.5}
    assert body["mirror_path"] == str(tmp_path / "mirror" / "visits")
