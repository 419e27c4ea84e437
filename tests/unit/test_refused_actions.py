"""An abort and the page's actions refuse before anything has changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from fastapi import HTTPException
from sqlalchemy import update

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.registry import generations, plannings, publications, rewinds, schema, streams
from rewind.registry.database import writing
from rewind.registry.verdicts import Verdict
from rewind.runtime import approvers
from rewind.steps.lifecycle import abort
from rewind.web import actions, app, offers
from rewind.web.access import READS_ALL, Viewer
from rewind.web.actions import Act
from rewind.web.offers import Offer
from tests.support.fakes import generation, installation, plan

OLD, NEW = "visits_converter-g1", "visits_converter-g2"


@pytest.fixture
def settings(tmp_path):
    made = installation(tmp_path)
    with writing(made.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
        rewinds.open_rewind(connection, "rw-1", plan())
    return made


def candidate(settings, rewind_id):
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), rewind_id)
        streams.wish(connection, NEW, streams.GENERATION, streams.RUN)


def after(settings):
    """What an abort may have changed: the rewind's state, whether it is being aborted, and the candidate's."""
    with writing(settings.registry_url) as connection:
        being_aborted = rewinds.fact(connection, "rw-1", rewinds.ABORTING)
        job, stream = generations.read(connection, NEW), streams.read(connection, NEW)
        return rewinds.read(connection, "rw-1").state, being_aborted, job.state, stream.wish


def test_a_rewind_whose_job_is_live_is_not_aborted_and_the_job_runs_on(settings):
    candidate(settings, "rw-1")
    with writing(settings.registry_url) as connection:
        generations.switch(connection, "visits_converter", OLD, NEW, 1, timedelta(hours=1))
        publications.hold(connection, "visits_converter", 2, NEW, "rw-1")
    with pytest.raises(RefusedError, match=f"rewind_id: {NEW} is live: the pointer has moved. Roll back"):
        abort.run(settings, "rw-1", "visits_converter", "")
    assert after(settings) == (lifecycle.ACTIVE, None, lifecycle.LIVE, streams.RUN)
    with writing(settings.registry_url) as connection:
        assert publications.find(connection, "visits_converter", 2).held_by == "rw-1"


@pytest.mark.shows("secure", id_of_another_abort_step="refused")
def test_another_pipelines_rewind_is_not_aborted_nor_is_anything_recorded(settings):
    candidate(settings, "rw-1")
    for rewind_id, pipeline in (("rw-1", "carts"), ("rw-2", "visits_converter")):
        with pytest.raises(RefusedError, match=r"rewind_id: .*(is no rewind of carts|is unknown)"):
            abort.run(settings, rewind_id, pipeline, "")
    assert after(settings) == (lifecycle.ACTIVE, None, lifecycle.CANDIDATE, streams.RUN)
    with writing(settings.registry_url) as connection:
        assert rewinds.steps_of(connection, "rw-1") == []


def test_an_abort_leaves_alone_what_another_rewind_made_under_the_name(settings):
    candidate(settings, "rw-0")
    abort.run(settings, "rw-1", "visits_converter", "wrong rates")
    assert after(settings) == (lifecycle.ABORTED, {"reason": "wrong rates"}, lifecycle.CANDIDATE, streams.RUN)


@pytest.mark.parametrize(
    ("action", "reason", "problem"),
    [
        (offers.APPROVE, " ", "reason: is empty. This verdict needs one"),
        (offers.ABORT, "why", "action: abort is not possible for rw-1 now. Look at the page again"),
        (offers.APPROVE, "why", ""),
    ],
)
def test_what_the_page_does_not_offer_or_lacks_its_reason_reaches_nobody(monkeypatch, action, reason, problem):
    asked: list[tuple[str, str]] = []

    async def answer(_request, dag_id, _rewind_id, chosen, why):
        asked.append((chosen, why))
        return dag_id

    monkeypatch.setattr(offers, "offers", lambda *_: [Offer(offers.APPROVE, "Approve", "", offers.NEEDED)])
    monkeypatch.setattr(actions, "_refuse_asker", lambda _: None)
    pipeline, rewind = SimpleNamespace(name="visits_converter"), SimpleNamespace(id="rw-1")
    wanted = Act(None, None, SimpleNamespace(answer=answer), pipeline, rewind, "ada", reason, None)
    if not problem:
        assert asyncio.run(actions.act(action, wanted)) == "answered Approve to run rewind_visits_converter"
        assert asked == [("Approve", "why")]
        return
    with pytest.raises(RefusedError, match=problem):
        asyncio.run(actions.act(action, wanted))
    assert asked == []


@pytest.mark.parametrize(
    ("live_says", "plan_says", "person", "refused"),
    [
        (False, False, "ada", ""),
        (False, True, "bob", ""),
        (False, True, "ada", "approval.four_eyes: ada asked for rw-1. Let another person approve it"),
        (True, False, "ada", "approval.four_eyes: ada asked for rw-1"),
        (True, True, "", "approval.four_eyes: nobody knows who answered"),
        (False, False, "", ""),
    ],
)
def test_who_asked_does_not_approve_where_two_are_needed(settings, live_says, plan_says, person, refused):
    with writing(settings.registry_url) as connection:
        # A command makes it known before the run does, and does not know by whom.
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False)
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False, person="ada")
        # Who asked first is kept.
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False, person="bob")
        frozen = {**generations.read(connection, OLD).frozen}
        frozen["config"] = {**frozen["config"], "four_eyes": live_says}
        connection.execute(update(schema.generations).values(frozen=frozen))
        made = replace(plan(), config={**plan().config, "four_eyes": plan_says})
        if not refused:
            approvers.refuse_asker(connection, "rw-1", made, person)
            return
        with pytest.raises(RefusedError, match=refused):
            approvers.refuse_asker(connection, "rw-1", made, person)


@pytest.mark.parametrize(
    ("live_says", "plan_says", "person", "asked", "told"),
    [
        (None, None, "ada", True, ""),
        (None, None, "", True, ""),
        (None, ["ada", "bob"], "ada", True, ""),
        (None, ["bob"], "ada", True, "does not name ada. Leave it out, and let a person approve"),
        (["bob"], None, "ada", True, "does not name ada"),
        (["bob"], ["ada"], "ada", True, "does not name ada"),
        (None, [], "ada", True, "does not name ada"),
        (None, ["ada", ""], "", True, "does not name whoever asked, whose name is not known"),
        (["bob"], ["bob"], "ada", False, ""),
    ],
)
def test_a_pass_approves_by_itself_for_those_who_are_named(settings, live_says, plan_says, person, asked, told):
    passed = Verdict(1, 1, lifecycle.PASS, {}, {}, {}, [], "", datetime.now(UTC))
    with writing(settings.registry_url) as connection:
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False, person=person)
        frozen = {**generations.read(connection, OLD).frozen}
        frozen["config"] = {**frozen["config"], "auto_approve_by": live_says}
        connection.execute(update(schema.generations).values(frozen=frozen))
        made = replace(plan(), config={**plan().config, "auto_approve_by": plan_says})
        made = replace(made, request=replace(made.request, auto_approve=asked))
        assert approvers.needs_no_person(connection, "rw-1", made, passed) is (asked and not told)
        if not told:
            approvers.refuse_auto_approve(connection, "rw-1", made)
            return
        with pytest.raises(RefusedError, match=f"auto_approve: approval.auto_approve_by {told}"):
            approvers.refuse_auto_approve(connection, "rw-1", made)


def test_the_page_lets_nobody_approve_their_own_where_two_are_needed(settings, monkeypatch):
    made = replace(plan(), config={**plan().config, "four_eyes": True})
    with writing(settings.registry_url) as connection:
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False, person="ada")
    monkeypatch.setattr(
        offers, "offers", lambda *_: [Offer(offers.APPROVE, "", "", ""), Offer(offers.REJECT, "", "", "")]
    )

    async def answer(_request, _dag_id, _rewind_id, chosen, _why):
        return chosen

    rewind = SimpleNamespace(id="rw-1", plan=made)
    airflow, pipeline = SimpleNamespace(answer=answer), SimpleNamespace(name="visits_converter")

    def act(action, person):
        return asyncio.run(actions.act(action, Act(None, settings, airflow, pipeline, rewind, person, "", None)))

    with pytest.raises(RefusedError, match="ada asked for rw-1"):
        act(offers.APPROVE, "ada")
    assert act(offers.REJECT, "ada") == "answered Reject to run Reject"
    assert act(offers.APPROVE, "bob") == "answered Approve to run Approve"


@pytest.mark.parametrize(
    ("live", "cut_over", "offered"),
    [(OLD, "pending", [offers.ABORT]), (OLD, "failed", [offers.ABORT]), (OLD, "running", []), (NEW, "failed", [])],
)
def test_an_abort_is_offered_until_the_pointer_moves_also_where_the_step_failed_after_that(live, cut_over, offered):
    states = {"cut_over": cut_over, "observe": "pending"}
    rewind = SimpleNamespace(job_id=NEW, step=lambda name: SimpleNamespace(state=states[name]))
    assert [offer.name for offer in offers._ends(SimpleNamespace(live=live), rewind)] == offered


@pytest.mark.parametrize("name", ["../app.py", "../assets/index.html", "./index.html", ".index.html", "none.css"])
def test_only_files_of_the_page_itself_are_served(name):
    assert app._asset("index.html").status_code == 200
    with pytest.raises(HTTPException) as refused:
        app._asset(name)
    assert refused.value.status_code == 404


def test_an_action_goes_by_the_registry_as_it_is_now(settings, monkeypatch):
    done: list[str] = []
    state = SimpleNamespace(
        settings=lambda: settings,
        forget=lambda: done.append("forgot"),
        look=lambda pipeline: done.append(f"looked at {pipeline}"),
    )
    monkeypatch.setattr(app.rewind_page, "seen", lambda *_: "seen")
    assert app._anew(state, Viewer(READS_ALL, "ada"), "rw-1") == "seen"
    assert done == ["forgot", "looked at visits_converter"]
