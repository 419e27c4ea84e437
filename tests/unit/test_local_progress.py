"""Whether something moves: by marks and CPU time, with the time passed in."""

from __future__ import annotations

from rewind.local.progress import CPU_SECONDS, Progress, Standstills


def test_what_changes_moves_however_long_it_takes() -> None:
    progress = Progress(0.0, still=90)
    for step in range(1, 1_000):
        progress.note(("position", step), step * 89.0)
        assert not progress.stuck(step * 89.0)
    assert progress.waited(1_000 * 89.0) == 89_000
    assert progress.stuck(999 * 89.0 + 90)


def test_what_stays_the_same_stands_still_since_its_last_change() -> None:
    progress = Progress(10.0, still=90)
    progress.note({0: 5}, 20.0)
    progress.note({0: 5}, 60.0)
    assert (progress.still(109.0), progress.stuck(109.0)) == (89, False)
    assert (progress.still(110.0), progress.stuck(110.0)) == (90, True)


def test_cpu_time_moves_once_enough_was_used_since_the_last_movement() -> None:
    progress = Progress(0.0, still=90)
    progress.note_cpu({1: 100.0}, 1.0)
    progress.note_cpu({1: 100.0 + CPU_SECONDS / 2, 2: CPU_SECONDS / 4}, 50.0)
    assert progress.still(50.0) == 50
    progress.note_cpu({1: 100.0 + CPU_SECONDS / 2, 2: CPU_SECONDS / 2}, 80.0)
    assert progress.still(80.0) == 0
    progress.note_cpu({1: 100.0 + CPU_SECONDS, 2: CPU_SECONDS}, 170.0)
    assert progress.still(170.0) == 0


def test_cpu_time_from_before_the_last_movement_moves_nothing() -> None:
    progress = Progress(0.0, still=90)
    progress.note_cpu({1: 0.0}, 1.0)
    progress.note("there", 10.0)
    progress.note_cpu({1: CPU_SECONDS - 0.1}, 11.0)
    progress.note_cpu({1: CPU_SECONDS + 0.1}, 50.0)
    assert progress.still(50.0) == 40


def test_a_process_that_goes_gives_no_time_back_and_its_successor_counts_from_its_start() -> None:
    progress = Progress(0.0, still=90)
    progress.note_cpu({1: 100.0}, 1.0)
    progress.note_cpu({2: CPU_SECONDS - 0.1}, 60.0)
    assert progress.still(60.0) == 60
    progress.note_cpu({2: CPU_SECONDS}, 61.0)
    assert progress.still(61.0) == 0


def test_a_standstill_counts_from_its_begin_across_waits_and_is_over_when_it_ends() -> None:
    standstills = Standstills(still=90)
    assert standstills.note(["driver", "broker"], 0.0) == []
    assert standstills.note(["driver"], 80.0) == []
    assert standstills.note(["driver", "broker"], 90.0) == ["driver"]
    assert standstills.note([], 91.0) == []
    assert standstills.note(["driver", "broker"], 179.0) == []
