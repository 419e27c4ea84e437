"""Generations and the pointer: what races decide once, and what is harmless when done again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.registry import generations, rewinds
from rewind.registry.database import now, writing
from tests.support.registry import G1, G2, G3, NAME, a_plan, create, deployed, raced

GRACE = timedelta(hours=1)


# --- generations


def test_a_generation_comes_back_as_it_was_made(registry):
    made = create(registry, 2, handoff=None, start={0: 5, 10: 7})
    assert generations.read(registry, G2) == made
    assert generations.rewind_of(registry, G2) is None
    assert [g.job_id for g in generations.all_of(registry, "visits_converter")] == [G2]
    assert generations.in_state(registry, "visits_converter", "candidate") == [made]
    assert generations.in_state(registry, "visits_converter", "live") == []


def test_creating_again_returns_what_was_recorded_first(registry):
    first = create(registry, 2, rewind_id="rw-1")
    assert create(registry, 2, rewind_id="rw-1", bundle="other") == first


def test_a_job_id_of_another_rewind_is_refused(registry):
    create(registry, 2, rewind_id="rw-1")
    with pytest.raises(RefusedError, match=f"{G2} belongs to rewind rw-1"):
        create(registry, 2, rewind_id="rw-2")


def test_a_second_candidate_is_refused(registry):
    create(registry, 2)
    with pytest.raises(RefusedError, match="visits_converter has a candidate already"):
        create(registry, 3)


def test_a_transaction_goes_on_after_a_refusal(registry):
    """PostgreSQL takes no further statement after one that failed, unless a savepoint lies before it."""
    create(registry, 2)
    with pytest.raises(RefusedError):
        create(registry, 3)
    assert [g.job_id for g in generations.all_of(registry, NAME)] == [G2]


def test_an_unknown_generation_is_refused(registry):
    with pytest.raises(RefusedError, match="'visits_converter-g1' is unknown"):
        generations.read(registry, G1)
    assert generations.find(registry, G1) is None


def test_numbers_are_never_used_again(registry):
    assert generations.next_number(registry, "visits_converter", "g") == 1
    create(registry, 1, lifecycle.COLLECTED)
    create(registry, 7, lifecycle.ABORTED)
    assert generations.next_number(registry, "visits_converter", "g") == 8
    assert generations.next_number(registry, "visits_converter", "r") == 1


def test_a_handoff_is_fixed_once(registry):
    create(registry, 2, handoff=None)
    assert generations.set_handoff(registry, G2, {0: 5, 1: 6}) == {0: 5, 1: 6}
    assert generations.set_handoff(registry, G2, {0: 9, 1: 9}) == {0: 5, 1: 6}


def test_moves_go_by_the_lifecycle_and_are_harmless_again(registry):
    create(registry, 1)
    for _ in range(2):
        generations.move(registry, G1, lifecycle.ABORTED)
    with pytest.raises(RefusedError, match="is aborted and cannot become live"):
        generations.move(registry, G1, lifecycle.LIVE)
    assert generations.read(registry, G1).state == "aborted"


def test_a_move_that_another_transaction_overtook_is_refused(registry, monkeypatch):
    stale = create(registry, 1)
    generations.move(registry, G1, lifecycle.ABORTED)
    monkeypatch.setattr(generations, "read", lambda connection, job_id: stale)
    with pytest.raises(WorldMovedError, match=f"{G1} is no longer candidate"):
        generations.move(registry, G1, lifecycle.LIVE)


# --- the pointer


def switch(connection, old=G1, new=G2, epoch=1):
    return generations.switch(connection, "visits_converter", old, new, epoch, GRACE)


def states(connection):
    return {g.job_id[-2:]: g.state for g in generations.all_of(connection, "visits_converter")}


def test_the_first_generation_is_epoch_one(registry):
    assert generations.live(registry, "visits_converter") is None
    create(registry, 1)
    assert [generations.set_first(registry, G1) for _ in range(2)] == [1, 1]
    assert generations.live(registry, "visits_converter") == (generations.read(registry, G1), 1)


def test_a_second_first_generation_is_refused(registry):
    deployed(registry)
    with pytest.raises(RefusedError, match=f"visits_converter has {G1} live"):
        generations.set_first(registry, G2)


def test_a_switch_moves_pointer_and_states_at_once(registry):
    deployed(registry)
    before = now()

    assert switch(registry) == 2
    assert generations.live(registry, "visits_converter") == (generations.read(registry, G2), 2)
    assert states(registry) == {"g1": "standby", "g2": "live"}
    assert before + GRACE <= generations.grace_until(registry, G1) <= now() + GRACE


def test_a_switch_done_already_returns_its_epoch_and_moves_nothing(registry):
    deployed(registry)
    switch(registry)
    until = generations.grace_until(registry, G1)

    assert switch(registry) == 2
    assert (states(registry), generations.grace_until(registry, G1)) == ({"g1": "standby", "g2": "live"}, until)


@pytest.mark.parametrize(("old", "new", "epoch"), [(G1, G2, 2), (G3, G2, 1), (G2, G1, 1), (G1, G3, 0)])
def test_a_pointer_that_is_elsewhere_is_not_moved(registry, old, new, epoch):
    deployed(registry)
    with pytest.raises(
        WorldMovedError, match=f"the pointer of visits_converter is at {G1} at epoch 1, not {old} at {epoch}"
    ):
        switch(registry, old, new, epoch)
    assert states(registry) == {"g1": "live", "g2": "candidate"}


def test_a_pointer_that_is_nowhere_is_not_moved(registry):
    with pytest.raises(WorldMovedError, match="is at nowhere"):
        switch(registry)


def test_a_rollback_is_one_more_switch_and_forward_again_too(registry):
    deployed(registry)
    switch(registry)
    assert switch(registry, G2, G1, 2) == 3
    assert states(registry) == {"g1": "live", "g2": "standby"}
    assert switch(registry, G1, G2, 3) == 4


def test_a_switch_to_what_may_not_live_moves_nothing(url):
    with writing(url) as connection:
        deployed(connection)
        generations.move(connection, G2, lifecycle.ABORTED)

    with pytest.raises(RefusedError, match="is aborted and cannot become live"), writing(url) as connection:
        switch(connection)

    with writing(url) as connection:
        assert generations.live(connection, "visits_converter")[1] == 1
        assert states(connection) == {"g1": "live", "g2": "aborted"}


def test_a_new_cut_over_ends_the_grace_of_older_standbys_alone(registry):
    deployed(registry)
    switch(registry)
    create(registry, 3)
    switch(registry, G2, G3, 2)
    generations.end_older_standbys(registry, "visits_converter", newest=G2)

    assert generations.grace_until(registry, G1) <= now()
    assert generations.grace_until(registry, G2) > now()


def test_of_racing_switches_one_wins(url):
    with writing(url) as connection:
        deployed(connection)
        for number in (3, 4, 5):
            create(connection, number, lifecycle.STANDBY)

    def act(number):
        with writing(url) as connection:
            return switch(connection, new=f"visits_converter-g{number + 2}")

    outcome = raced(act, 4)
    assert sorted(map(str, outcome)) == ["2", "WorldMovedError", "WorldMovedError", "WorldMovedError"]
    with writing(url) as connection:
        assert list(states(connection).values()).count("live") == 1
        assert generations.live(connection, "visits_converter")[0].job_id == f"visits_converter-g{outcome.index(2) + 2}"


def test_of_racing_candidates_and_rewinds_one_is_made(url):
    def candidate(number):
        with writing(url) as connection:
            create(connection, number + 1)
            return "made"

    def rewind(number):
        with writing(url) as connection:
            rewinds.open_rewind(connection, f"rw-{number}", a_plan())
            return "made"

    for act in (candidate, rewind):
        assert sorted(raced(act, 3)) == ["RefusedError", "RefusedError", "made"]
