"""Moves of consumer groups: recorded first, made once, never over another's position, never for another's pointer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.planning.consumer_groups import Move, Sides, check_history, check_reach, from_json
from rewind.registry import generations
from rewind.registry.database import writing
from rewind.runtime import consumer_groups
from tests.support.fakes import FakeBroker, generation, installation

PIPELINE, OLD, NEW = "visits_converter", "visits_converter-g1", "visits_converter-g2"
OUT = {job: f"visits_converted-{job[-2:]}" for job in (OLD, NEW)}
SIDES = Sides(generation(number=1), generation(number=2))


@pytest.fixture
def settings(tmp_path):
    """g1 is live at epoch 1, g2 is its candidate."""
    made = installation(tmp_path / "home")
    with writing(made.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), "rw-1")
    return made


@pytest.fixture
def broker():
    """Both outputs, two partitions each; the group `shop` has read some of the old one."""
    made = FakeBroker()
    for topic in OUT.values():
        made.make(topic, 2)
    made.commit("shop", OUT[OLD], {0: 5, 1: 3})
    return made


def switch(settings, old=OLD, new=NEW, epoch=1):
    with writing(settings.registry_url) as connection:
        generations.switch(connection, PIPELINE, old, new, epoch, timedelta(hours=1))


def move(group="shop", **changes):
    values = {"from_job": OLD, "to_job": NEW, "to_topic": OUT[NEW], "before": {}, "positions": {0: 4, 1: 2}}
    values |= {"repeats": 2, "left_out": 1, "listed": ("0:1",), "dropped": 0}
    return Move(group, **{**values, **changes})


def planned(settings, *moves, move_id="rw-1"):
    with writing(settings.registry_url) as connection:
        consumer_groups.plan(connection, move_id, PIPELINE, moves)


def moved_to(settings, job):
    with writing(settings.registry_url) as connection:
        return consumer_groups.moved_to(connection, job)


def test_a_move_survives_its_text_and_is_told():
    assert from_json(move().to_json()) == move()
    assert move().told() == [
        f'group shop: from {OLD} to {{"{OUT[NEW]}":{{"0":4,"1":2}}}}',
        "  repeats   2 records that it has read before",
        f"  left out  1 records that only {NEW} has below its position",
        "            source 0:1",
        f"  dropped   0 records that it has not read and {NEW} has no answer to",
    ]
    assert "0:1, and 6 more" in move(left_out=7).told()[3]


def test_what_a_group_has_read(settings, broker):
    found = consumer_groups.held(settings, broker, SIDES, "shop")
    assert (found.read, found.before, found.started) == ({0: 5, 1: 3}, {}, {})


@pytest.mark.parametrize(
    ("group", "told"),
    [
        (OLD, f"{OLD} is the group of a job"),
        ("nobody", f"nobody has no position on {OUT[OLD]}"),
        ("busy", r"busy has members \(Stable\)"),
    ],
)
def test_a_group_that_cannot_be_moved_is_refused(settings, broker, group, told):
    broker.commit("busy", OUT[OLD], {0: 1})
    with broker.member("busy", OUT[OLD]), pytest.raises(RefusedError, match=f"consumer_groups: {told}"):
        consumer_groups.held(settings, broker, SIDES, group)


def test_a_planned_move_is_made_after_the_switch_and_once(settings, broker):
    planned(settings, move())
    switch(settings)
    assert consumer_groups.carry_out(settings, broker, "rw-1") == {"shop": "moved"}
    assert broker.group_offsets("shop", OUT[NEW]) == {0: 4, 1: 2}
    assert moved_to(settings, NEW) == ["shop"]
    broker.commit("shop", OUT[NEW], {0: 9, 1: 9})
    planned(settings, move(positions={0: 0, 1: 0}))
    assert consumer_groups.carry_out(settings, broker, "rw-1") == {"shop": "moved"}
    assert broker.group_offsets("shop", OUT[NEW]) == {0: 9, 1: 9}, "it has read on: nothing sets it back"
    # What it read there begins where it was put.
    assert consumer_groups.held(settings, broker, SIDES, "shop").started == {0: 4, 1: 2}


def test_a_move_that_was_made_but_not_marked_is_marked(settings, broker):
    planned(settings, move())
    switch(settings)
    broker.commit("shop", OUT[NEW], {0: 4, 1: 2})
    assert consumer_groups.carry_out(settings, broker, "rw-1") == {"shop": "moved"}


def test_one_refusal_does_not_stop_the_others(settings, broker):
    planned(settings, move("another"), move("busy"), move("shop"))
    switch(settings)
    broker.commit("another", OUT[NEW], {0: 1})
    with broker.member("busy", OUT[OLD]):
        found = consumer_groups.carry_out(settings, broker, "rw-1")
    assert found["shop"] == "moved"
    assert found["busy"].startswith("consumer_groups: busy has members (Stable)")
    assert found["another"].startswith(
        f"consumer_groups: another was moved on {OUT[NEW]} by somebody else, to {{0: 1}}"
    )
    assert (broker.group_offsets("another", OUT[NEW]), broker.group_offsets("busy", OUT[NEW])) == ({0: 1}, {})
    assert moved_to(settings, NEW) == ["shop"]


def test_nothing_is_moved_to_an_output_that_is_not_live(settings, broker):
    planned(settings, move())
    found = consumer_groups.carry_out(settings, broker, "rw-1")
    assert found["shop"].startswith(f"consumer_groups: the pointer is at {OLD}, not {NEW}")
    assert broker.group_offsets("shop", OUT[NEW]) == {}


def test_a_pointer_that_moves_while_a_position_is_set_leaves_no_mark(settings, broker):
    planned(settings, move())
    switch(settings)
    commit = broker.commit

    def commit_and_switch(*arguments):
        commit(*arguments)
        switch(settings, NEW, OLD, 2)

    broker.commit = commit_and_switch
    assert "the pointer is at" in consumer_groups.carry_out(settings, broker, "rw-1")["shop"]
    assert moved_to(settings, NEW) == []


def test_a_group_that_went_back_is_no_longer_there(settings, broker):
    planned(settings, move())
    switch(settings)
    consumer_groups.carry_out(settings, broker, "rw-1")
    planned(settings, move(from_job=NEW, to_job=OLD, to_topic=OUT[OLD], before={0: 5, 1: 3}), move_id="rb-1")
    switch(settings, NEW, OLD, 2)
    assert consumer_groups.carry_out(settings, broker, "rb-1") == {"shop": "moved"}
    assert (moved_to(settings, NEW), moved_to(settings, OLD)) == ([], ["shop"])


@pytest.mark.shows("secure", id_of_another_consumers="refused")
def test_between_which_outputs(settings):
    def sides(*jobs):
        with writing(settings.registry_url) as connection:
            found = consumer_groups.sides(connection, PIPELINE, *jobs)
        return found.old.job_id, found.new.job_id

    assert sides("", NEW) == (OLD, NEW), "a look before the switch"
    with pytest.raises(RefusedError, match="from_job: visits_converter has no standby"):
        sides("", "")
    with pytest.raises(RefusedError, match=f"from_job: is {OLD}, as to_job"):
        sides(OLD, "")
    with pytest.raises(RefusedError, match="to_job: 'other-g1' is no job of visits_converter"):
        sides("", "other-g1")
    switch(settings)
    assert sides("", "") == (OLD, NEW)


def test_a_group_whose_place_is_gone_is_refused_unless_it_replays(settings, broker):
    found = consumer_groups.held(settings, broker, SIDES, "shop")
    check_reach(found, {0: 5, 1: 3}, "out", replayed=False)
    check_reach(found, {0: 6, 1: 3}, "out", replayed=True)
    told = r"shop stands before what out still holds \(partition 0: at 5, earliest 6\)"
    with pytest.raises(RefusedError, match=told):
        check_reach(found, {0: 6, 1: 3}, "out", replayed=False)


def test_a_group_that_has_not_read_the_history_the_new_job_lacks_is_refused():
    check_history("shop", {0: 5, 1: 9}, {0: 5, 1: 9}, NEW)
    told = (
        rf"shop has not read what lies before the history of {NEW} \(source partition 1: unread from 8, begins at 9\)"
    )
    with pytest.raises(RefusedError, match=told):
        check_history("shop", {0: 5, 1: 8}, {0: 5, 1: 9}, NEW)
