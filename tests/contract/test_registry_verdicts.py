"""Verdicts and what people answer to them."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlalchemy import insert

from rewind.core.errors import RefusedError
from rewind.registry import rewinds, schema, verdicts
from rewind.registry.database import now
from rewind.registry.verdicts import Approval, Verdict

AT = datetime.fromisoformat("2025-09-04T12:00")


def judge(connection, verdict, attempt=1, backfill_attempt=1, reason=""):
    made = Verdict(attempt, backfill_attempt, verdict, {0: 0}, {0: 9}, {"equal": 9}, [{"offset": 3}], reason, AT)
    verdicts.store(connection, "rw-1", made)
    return made


def backfilled(connection, times=1):
    for _ in range(times):
        attempt = rewinds.begin_step(connection, "rw-1", "backfill")
        rewinds.end_step(connection, "rw-1", "backfill", attempt, "done", None)


def test_the_newest_verdict_is_read_back(registry):
    assert verdicts.newest(registry, "rw-1") is None
    judge(registry, "fail")
    made = judge(registry, "pass", attempt=2)
    assert verdicts.newest(registry, "rw-1") == made


def test_a_pass_is_approved_and_acted_on(registry):
    backfilled(registry)
    made = judge(registry, "pass")
    for _ in range(2):
        verdicts.answer(registry, "rw-1", "approve", "ann", "")

    assert verdicts.approval(registry, "rw-1") == Approval(1, "approve", "ann", "")
    assert verdicts.approved(registry, "rw-1") == made


@pytest.mark.parametrize(("person", "reason"), [("", "why"), ("ann", ""), ("ann", "  "), ("", "")])
def test_a_fail_needs_a_person_and_a_reason(registry, person, reason):
    backfilled(registry)
    judge(registry, "fail")
    with pytest.raises(RefusedError) as raised:
        verdicts.answer(registry, "rw-1", "approve", person, reason)
    assert raised.value.field == "reason"
    assert verdicts.approval(registry, "rw-1") is None

    verdicts.answer(registry, "rw-1", "approve", "ann", "known difference")
    assert verdicts.approved(registry, "rw-1").verdict == "fail"


def test_an_error_is_never_approved(registry):
    backfilled(registry)
    judge(registry, "error", reason="topic unreadable")
    with pytest.raises(RefusedError, match=r"the verdict is an error \(topic unreadable\)"):
        verdicts.answer(registry, "rw-1", "approve", "ann", "I insist")
    assert verdicts.approval(registry, "rw-1") is None


def test_an_error_is_not_acted_on_whatever_the_answers_say(registry):
    backfilled(registry)
    judge(registry, "error")
    values = {"answer": "approve", "person": "ann", "reason": "x", "at": now()}
    registry.execute(insert(schema.approvals).values(rewind_id="rw-1", attempt=1, **values))
    with pytest.raises(RefusedError, match="rw-1 has no verdict to act on"):
        verdicts.approved(registry, "rw-1")


def test_without_verdict_there_is_nothing_to_answer_or_act_on(registry):
    with pytest.raises(RefusedError, match="rw-1 has no verdict"):
        verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    with pytest.raises(RefusedError, match="rw-1 has no verdict to act on"):
        verdicts.approved(registry, "rw-1")


@pytest.mark.parametrize(("first", "second"), [("approve", "reject"), ("reject", "approve")])
def test_an_answer_is_not_changed(registry, first, second):
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", first, "ann", "x")
    with pytest.raises(RefusedError, match=f"rw-1 has the answer {first} by ann"):
        verdicts.answer(registry, "rw-1", second, "bob", "y")


@pytest.mark.parametrize("given", [None, "reject"])
def test_what_is_not_approved_is_not_acted_on(registry, given):
    backfilled(registry)
    judge(registry, "pass")
    if given:
        verdicts.answer(registry, "rw-1", given, "ann", "x")
    with pytest.raises(RefusedError, match="rw-1 is not approved"):
        verdicts.approved(registry, "rw-1")


def test_an_answer_holds_for_its_attempt_alone(registry):
    backfilled(registry)
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    judge(registry, "pass", attempt=2)

    assert verdicts.approval(registry, "rw-1") is None
    with pytest.raises(RefusedError, match="is not approved"):
        verdicts.approved(registry, "rw-1")


def test_a_backfill_done_again_after_the_verdict_is_refused(registry):
    """Case C28 a: backfill alone was cleared, and cut-over starts on the old verdict."""
    backfilled(registry)
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    backfilled(registry)

    with pytest.raises(RefusedError) as raised:
        verdicts.approved(registry, "rw-1")
    assert raised.value.problem == "validated attempt 1 of backfill, backfilled attempt 2"
