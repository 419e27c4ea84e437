"""Who comes first, when several processes want the same: exactly one of them, each time."""

from __future__ import annotations

from tests.scenarios.races import pointer_race, start_race


def test_each_epoch_of_the_pointer_has_one_winner(tmp_path):
    assert pointer_race(f"sqlite:///{tmp_path}/registry.db", 4, 40) == [1] * 40


def test_each_start_of_a_rewind_has_one_winner(tmp_path):
    assert start_race(f"sqlite:///{tmp_path}/registry.db", 8, 5) == [1] * 5
