"""A plan that is aborted while it is made opens nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewind.core.errors import RefusedError
from rewind.core.planning.plan import Request
from rewind.registry import plannings, rewinds
from rewind.registry.database import writing
from rewind.steps.lifecycle import plan as step
from tests.support.fakes import installation, plan

REQUEST = '{"dry_run": false}'


@pytest.fixture
def settings(tmp_path, monkeypatch):
    made = installation(tmp_path / "home")
    monkeypatch.setattr(step, "_proven", lambda *_: [])
    with writing(made.registry_url) as connection:
        plannings.ask(connection, "rw-1", "visits_converter", "", dry_run=False)
    return made


def abort(settings):
    with writing(settings.registry_url) as connection:
        assert plannings.abort(connection, "rw-1", "") is not None


def test_an_abort_while_it_is_made(settings, monkeypatch):
    made = plan()

    def aborted_meanwhile(*_):
        abort(settings)
        return made

    monkeypatch.setattr(step, "_made", aborted_meanwhile)
    with pytest.raises(RefusedError, match="rewind rw-1 was aborted while it was planned"):
        step.run(settings, "rw-1", "visits_converter", REQUEST)
    with writing(settings.registry_url) as connection:
        assert rewinds.find(connection, "rw-1") is None
        with pytest.raises(RefusedError, match="is unknown"):
            rewinds.read_plan(connection, made.id)


def test_an_abort_before_it_begins(settings, monkeypatch):
    monkeypatch.setattr(step, "_made", lambda *_: pytest.fail("it was planned"))
    abort(settings)
    with pytest.raises(RefusedError, match="rewind rw-1 was aborted while it was planned"):
        step.run(settings, "rw-1", "visits_converter", REQUEST)


def test_one_that_may_not_be_approved_by_itself_is_not_opened(settings, monkeypatch):
    made = plan(request=Request("visits_converter", auto_approve=True))
    made = replace(made, config={**made.config, "auto_approve_by": ["bob"]})
    monkeypatch.setattr(step, "_made", lambda *_: made)
    with pytest.raises(RefusedError, match=r"auto_approve: approval\.auto_approve_by does not name whoever asked"):
        step.run(settings, "rw-1", "visits_converter", REQUEST)
    with writing(settings.registry_url) as connection:
        assert rewinds.find(connection, "rw-1") is None


def test_one_that_nobody_aborts_is_opened(settings, monkeypatch):
    monkeypatch.setattr(step, "_made", lambda *_: plan())
    step.run(settings, "rw-1", "visits_converter", REQUEST)
    with writing(settings.registry_url) as connection:
        assert rewinds.read_active(connection, "rw-1")[0].plan_id == plan().id
        assert plannings.being_made(connection) == []
