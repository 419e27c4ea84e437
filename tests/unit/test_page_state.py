"""When the page looks anew: what stands still is not read again, and what moves is seen."""

from __future__ import annotations

import pytest

from rewind.registry import database, generations, rewinds
from rewind.registry.database import writing
from rewind.views import change_count
from rewind.web.state import FRESH_SECONDS, LONGEST_SECONDS, STILL_SECONDS, State
from rewind.web.wire import Kept
from tests.support import page_states
from tests.support.page_states import LIVE, Ends


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def settings(make_settings, tmp_path):
    made = make_settings(REWIND_PIPELINES=str(tmp_path / "declared"))
    page_states.declare(made)
    page_states.seed(made, "backfilling")
    return made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(settings, clock):
    return State(lambda: settings, lambda _: Ends(), clock, lambda: 0.0)


def test_one_look_serves_all_for_some_seconds(settings, state, clock):
    first = state.look()
    clock.now += FRESH_SECONDS
    with writing(settings.registry_url) as connection:
        rewinds.fix(connection, page_states.REWIND_ID, "x", 1)
    assert state.look() is first
    clock.now += 0.1
    assert state.look() is not first


def test_what_stands_still_is_not_read_again_for_longer(state, clock):
    first = state.look()
    for _ in range(3):
        clock.now += FRESH_SECONDS + 0.1
        assert state.look() is first
    clock.now = 1_000.0 + STILL_SECONDS + 0.1
    assert state.look() is not first


@pytest.mark.parametrize(("cost", "serves"), [(0.01, FRESH_SECONDS), (0.07, 7.0), (3.0, LONGEST_SECONDS)])
def test_a_costly_look_serves_longer_but_not_for_long(settings, clock, cost, serves):
    spent = iter([0.0, cost, 0.0, cost])
    state = State(lambda: settings, lambda _: Ends(), clock, lambda: next(spent))
    first = state.look()
    with writing(settings.registry_url) as connection:
        rewinds.fix(connection, page_states.REWIND_ID, "x", 1)
    clock.now += serves - 0.01
    assert state.look() is first
    clock.now += 0.02
    assert state.look() is not first


def test_an_action_makes_the_next_look_a_new_one(state):
    first = state.look()
    state.forget()
    assert state.look() is not first


def test_another_registry_of_the_same_number_is_another(state, settings, clock, monkeypatch, make_settings, tmp_path):
    first = state.look()
    other = make_settings(REWIND_HOME=str(tmp_path / "other"), REWIND_PIPELINES=str(tmp_path / "declared"))
    page_states.seed(other, "backfilling")
    assert change_count.number(other.registry_url) == change_count.number(settings.registry_url)
    monkeypatch.setattr(state, "_settings", lambda: other)
    clock.now += FRESH_SECONDS + 0.1
    assert state.look() is not first


def test_a_registry_that_does_not_count_is_read_each_time(settings, state, clock):
    with database.engine(settings.registry_url).begin() as connection:
        connection.exec_driver_sql("DELETE FROM changes")
    assert change_count.number(settings.registry_url) is None
    first = state.look()
    clock.now += FRESH_SECONDS + 0.1
    assert state.look() is not first


def test_no_registry_has_no_number(make_settings):
    assert change_count.number(make_settings().registry_url) is None


def test_what_was_encoded_serves_all_who_ask_for_the_same():
    kept, made = Kept(), []

    def body():
        made.append(1)
        return {"n": len(made)}

    source, other = object(), object()
    assert kept.encoded(source, ("a",), body) == kept.encoded(source, ("a",), body)
    assert kept.encoded(source, (), body)[0] == b'{"n":2}'
    assert kept.encoded(source, ("a",), body)[0] == b'{"n":1}'
    assert kept.encoded(other, ("a",), body)[0] == b'{"n":3}'
    assert len(made) == 3


def test_a_switch_is_seen(settings, state, clock):
    assert state.look().pipeline("visits").jobs[0].state == "live"
    with writing(settings.registry_url) as connection:
        generations.set_grace(connection, LIVE, database.now())
    clock.now += FRESH_SECONDS + 0.1
    assert state.look().pipeline("visits").jobs[0].grace_until is not None
