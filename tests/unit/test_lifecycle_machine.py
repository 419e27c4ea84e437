"""The state machine of the lifecycle, at a small size; `make accept WHAT=safety` runs it at its full one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from rewind.core.errors import RewindError
from tests.mutants.here import SOON_NOTICED, planted_here
from tests.scenarios.machine import REACHED, Lifecycle

SMALL = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
# What a mutant does wrong need not be found in its shortest form.
HUNT = settings(SMALL, max_examples=150, phases=[Phase.generate])
# The same examples whatever becomes of the code, by a seed whose examples reach all of what is asked for below soon.
seed(2)(Lifecycle)


def test_whatever_two_actors_do_and_wherever_they_crash_the_lifecycle_holds():
    REACHED.clear()
    run_state_machine_as_test(Lifecycle, settings=SMALL)
    # The examples that the seed gives must reach what the invariants are about.
    assert min(REACHED[name] for name in ("epoch 2", "epoch 3", "Crash", "collected a standby")) > 0, REACHED


@pytest.mark.parametrize("fault", SOON_NOTICED, ids=lambda fault: fault.name)
def test_the_machine_notices_a_missing_guard(fault):
    # A lifecycle that cannot be brought to its end is noticed too.
    with planted_here(fault), pytest.raises((AssertionError, RewindError)):
        run_state_machine_as_test(Lifecycle, settings=HUNT)
