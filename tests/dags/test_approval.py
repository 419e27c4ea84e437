"""The gate: the question with the verdict in view, and which answers the registry takes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.exceptions import TaskAwaitingInput as Parked
from rewind_airflow import approval
from rewind_airflow.approval import Approve
from sqlalchemy import update

from rewind.registry import generations, plannings, rewinds, schema, verdicts
from rewind.registry.database import writing


@pytest.fixture
def gate(monkeypatch):
    """The gate; Airflow's own store of questions is out of reach here and keeps what it is asked."""
    asked = {}
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **kw: asked.update(kw))
    made = Approve(task_id="approve", pipeline="visits")
    made.asked = asked
    return made


@pytest.fixture
def recorded(installation, rewind_id):
    """Return the approval and the newest attempt at the step as they stand in the registry."""

    def read():
        with writing(installation.registry_url) as connection:
            steps = [s for s in rewinds.steps_of(connection, rewind_id) if s.step == "approve"]
            return verdicts.approval(connection, rewind_id), steps[-1] if steps else None

    return read


def event(option, reason=None, user="ada"):
    by = {"id": "1", "name": user} if user else None
    params = {} if reason is None else {"reason": reason}
    return {
        "chosen_options": [option],
        "params_input": params,
        "responded_at": datetime.now(UTC),
        "responded_by_user": by,
    }


def park(gate, context):
    context["task_instance"] = context["ti"]
    context["ti"].id = "ti"
    with pytest.raises(Parked) as parked:
        gate.execute(context)
    return parked.value


def test_it_parks_without_a_slot_and_shows_the_verdict(gate, context, opened, judged, recorded):
    opened()
    judged("pass")
    parked = park(gate, context)
    assert parked.method_name == "execute_complete"
    assert parked.timeout == approval.WAIT
    assert gate.execution_timeout is None
    body = gate.asked["body"]
    assert "**Verdict: pass** why" in body
    assert "| equal | 9 |\n| changed | 1 |" in body
    assert '`{"clicks":{"0":0}}` up to `{"clicks":{"0":10}}`' in body
    assert "`visits-g2` would become live instead of `visits-g1`" in body
    # A backtick in the data does not end the block of code it stands in.
    assert '"a": "\\u0060"' in body
    assert list(gate.asked["params"]) == ["reason"]
    assert recorded()[1].state == "running"


def test_the_form_of_a_failed_verdict_asks_for_the_reason(gate, context, opened, judged):
    opened()
    judged("fail")
    # What Airflow does with the run's conf, where it holds why the rewind was asked for.
    gate.params["reason"] = "the logic had a bug"
    park(gate, context)
    asked = gate.asked["params"]["reason"]
    assert asked["schema"] == {"type": "string", "minLength": 1, "maxLength": 2_000, "title": "Reason"}
    assert asked["value"] == ""


@pytest.mark.parametrize(("verdict", "reason"), [("pass", ""), ("pass", None), ("fail", "known change")])
def test_an_approval_is_recorded(gate, context, opened, judged, recorded, verdict, reason):
    opened()
    judged(verdict)
    park(gate, context)
    gate.execute_complete(context, event("Approve", reason))
    given, step = recorded()
    assert (given.answer, given.person, given.reason) == ("approve", "ada", reason or "")
    assert step.state == "done"


@pytest.mark.parametrize(
    ("verdict", "reason", "user", "text"),
    [
        ("fail", "", "ada", "reason: a failed verdict needs a person and a reason"),
        ("fail", "  ", "ada", "reason: a failed verdict needs a person and a reason"),
        ("fail", "why not", None, "reason: a failed verdict needs a person and a reason"),
        ("none", "", "ada", "reason: a verdict of which nothing was compared needs a person and a reason"),
        ("error", "why not", "ada", "answer: the verdict is an error"),
    ],
)
def test_what_cannot_be_approved_fails_with_the_reason(
    gate, context, opened, judged, recorded, verdict, reason, user, text
):
    opened()
    judged(verdict)
    park(gate, context)
    with pytest.raises(AirflowFailException, match=text):
        gate.execute_complete(context, event("Approve", reason, user))
    given, step = recorded()
    assert given is None
    assert step.state == "failed"
    assert text in step.evidence["refused"]


@pytest.fixture
def two_needed(opened, installation, rewind_id, judged):
    """A rewind that ada asked for, which passed, of a pipeline that asks for a second person, or has another rule."""

    def make(rule=None, **asked):
        with writing(installation.registry_url) as connection:
            plannings.ask(connection, rewind_id, "visits", "", dry_run=False, person="ada")
        opened(**asked)
        with writing(installation.registry_url) as connection:
            live = generations.read(connection, "visits-g1").frozen
            changed = {**live, "config": {**live["config"], **(rule or {"four_eyes": True})}}
            connection.execute(update(schema.generations).values(frozen=changed))
        judged("pass")

    return make


def test_who_asked_is_asked_again_where_two_are_needed(gate, context, two_needed, recorded):
    two_needed()
    for user in ("ada", None):
        park(gate, context)
        with pytest.raises(AirflowException, match=r"approval.four_eyes: (ada asked for rw-|nobody knows)") as again:
            gate.execute_complete(context, event("Approve", "", user))
        assert not isinstance(again.value, AirflowFailException), "it is asked again"
        assert recorded()[0] is None
    park(gate, context)
    gate.execute_complete(context, event("Approve", "", "bob"))
    assert (recorded()[0].answer, recorded()[0].person) == ("approve", "bob")


def test_who_asked_may_reject(gate, context, two_needed, recorded):
    two_needed()
    park(gate, context)
    with pytest.raises(AirflowFailException, match="was rejected by ada"):
        gate.execute_complete(context, event("Reject"))
    assert recorded()[0].answer == "reject"


def test_no_pass_goes_by_itself_where_two_are_needed(gate, context, two_needed, recorded):
    two_needed(auto_approve=True)
    park(gate, context)
    assert recorded()[0] is None


def test_no_pass_of_somebody_who_is_not_named_goes_by_itself(gate, context, two_needed, recorded):
    two_needed({"auto_approve_by": ["bob"]}, auto_approve=True)
    park(gate, context)
    assert recorded()[0] is None


def test_a_pass_of_somebody_who_is_named_goes_by_itself(gate, context, two_needed, recorded):
    two_needed({"auto_approve_by": ["ada"]}, auto_approve=True)
    gate.execute(context)
    assert (recorded()[0].answer, recorded()[0].person) == ("approve", "auto")


def test_a_rejection_fails_so_that_nothing_below_runs(gate, context, opened, judged, recorded):
    opened()
    judged("pass")
    park(gate, context)
    with pytest.raises(AirflowFailException, match="was rejected by ada: too many"):
        gate.execute_complete(context, event("Reject", "too many"))
    given, step = recorded()
    assert (given.answer, given.reason, step.state) == ("reject", "too many", "failed")


def test_no_answer_in_time_fails(gate, context, opened, judged, recorded):
    opened()
    judged("pass")
    park(gate, context)
    with pytest.raises(AirflowFailException, match="had no answer"):
        gate.execute_complete(context, {"error": "late", "error_type": "timeout"})
    assert recorded()[0] is None


def test_a_pass_needs_no_person_when_asked_so(gate, context, opened, judged, recorded):
    opened(auto_approve=True)
    judged("pass")
    gate.execute(context)
    given, step = recorded()
    assert (given.answer, given.person, step.state) == ("approve", "auto", "done")
    assert gate.asked == {}


def test_the_form_of_a_verdict_over_nothing_says_so_and_asks_for_the_reason(gate, context, opened, judged):
    opened()
    judged("none")
    park(gate, context)
    body = gate.asked["body"]
    assert "**Verdict: none** why" in body
    assert "**Nothing was compared**: no row of `visits-g2` was held against live's." in body
    assert "Compared from" not in body
    assert "| class |" not in body
    assert gate.asked["params"]["reason"]["schema"]["minLength"] == 1
    gate.execute_complete(context, event("Approve", "live is dead"))


@pytest.mark.parametrize("verdict", ["fail", "error", "none"])
def test_anything_but_a_pass_needs_a_person(gate, context, opened, judged, recorded, verdict):
    opened(auto_approve=True)
    judged(verdict)
    park(gate, context)
    assert recorded()[0] is None


def test_a_second_run_stands_by_the_answer_to_the_same_verdict(gate, context, opened, judged, recorded):
    opened()
    judged("fail")
    park(gate, context)
    gate.execute_complete(context, event("Approve", "known change"))
    gate.asked.clear()
    gate.execute(context)
    assert gate.asked == {}
    assert recorded()[0].person == "ada"


def test_without_a_verdict_there_is_nothing_to_ask(gate, context, opened):
    opened()
    with pytest.raises(AirflowFailException, match="has no verdict"):
        gate.execute(context)
