"""Rewinds that have no plan yet, as both databases hold them."""

from __future__ import annotations

import pytest

from rewind.core.errors import RefusedError
from rewind.registry import plannings, rewinds
from tests.support.registry import a_plan


def known(registry, pipeline=""):
    return [(one.id, one.pipeline, one.reason, one.dry_run) for one in plannings.being_made(registry, pipeline)]


def test_any_number_is_planned_at_a_time_and_asked_for_twice_is_once(registry):
    for number, dry_run in ((1, False), (2, False), (3, True), (1, True)):
        plannings.ask(registry, f"rw-{number}", "visits", f"why {number}", dry_run=dry_run)
    plannings.ask(registry, "rw-9", "carts", "", dry_run=False)
    assert known(registry, "visits") == [(f"rw-{n}", "visits", f"why {n}", n == 3) for n in (1, 2, 3)]
    assert known(registry, "carts") == [("rw-9", "carts", "", False)]
    assert len(known(registry)) == 4


def test_it_ends_with_the_plan(registry):
    plannings.ask(registry, "rw-1", "visits", "", dry_run=False)
    plannings.ask(registry, "rw-2", "visits", "", dry_run=True)
    rewinds.open_rewind(registry, "rw-1", a_plan())
    attempt = rewinds.begin_step(registry, "rw-2", "plan")
    assert [one[0] for one in known(registry)] == ["rw-2"]
    rewinds.end_step(registry, "rw-2", "plan", attempt, "done", {})
    assert known(registry) == []
    assert plannings.abort(registry, "rw-1", "") is None
    plannings.refuse_aborted(registry, "rw-1")


def test_a_rewind_that_is_aborted_while_it_is_active_may_look_at_its_plan(registry):
    plannings.ask(registry, "rw-1", "visits", "", dry_run=False)
    rewinds.open_rewind(registry, "rw-1", a_plan())
    rewinds.fix(registry, "rw-1", rewinds.ABORTING, {"reason": ""})
    plannings.refuse_aborted(registry, "rw-1")


def test_an_abort_is_kept(registry):
    assert plannings.abort(registry, "rw-1", "") is None
    plannings.ask(registry, "rw-1", "visits", "", dry_run=False)
    assert plannings.abort(registry, "rw-1", "wrong day").id == "rw-1"
    assert known(registry) == []
    assert plannings.abort(registry, "rw-1", "again") is None
    for call in (
        lambda: plannings.refuse_aborted(registry, "rw-1"),
        lambda: plannings.ask(registry, "rw-1", "visits", "", dry_run=False),
    ):
        with pytest.raises(RefusedError, match="rewind rw-1 was aborted while it was planned"):
            call()
    with pytest.raises(RefusedError, match=r"rw-1 was aborted while it was planned \(wrong day\)\. Trigger a new run"):
        rewinds.read(registry, "rw-1")


def test_one_that_failed_may_be_asked_for_again(registry):
    plannings.fail(registry, "rw-0", "nobody asked")
    plannings.ask(registry, "rw-1", "visits", "", dry_run=False)
    plannings.fail(registry, "rw-1", "a step of run r1 failed")
    assert known(registry) == []
    with pytest.raises(RefusedError, match="rw-1 was not planned: a step of run r1 failed"):
        rewinds.read(registry, "rw-1")
    with pytest.raises(RefusedError, match="rewind 'rw-0' is unknown"):
        rewinds.read(registry, "rw-0")
    plannings.ask(registry, "rw-1", "visits", "", dry_run=False)
    assert [one[0] for one in known(registry)] == ["rw-1"]
    with pytest.raises(RefusedError, match=r"rw-1 is being planned\. Wait for its plan, or abort it"):
        rewinds.read(registry, "rw-1")
