"""A rewind whose steps are killed at some of their side effects ends as one without; all of them: WHAT=safety."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crashes import ALL, Life, check
from tests.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_200)]

# Each moment whose half-done work only the world shows: the registry does not know of it yet.
HALF_DONE = [
    ("spin_up", "after:topic.create"),
    ("backfill", "after:chunk.write"),
    ("cut_over", "after:pointer.switch"),
    ("rollback", "after:pointer.roll_back"),
    ("collect_garbage", "after:delete.topic"),
]


def test_half_done_work_converges(workshop: Callable[..., Workshop]) -> None:
    assert set(HALF_DONE) <= set(ALL)
    check(Life(workshop("killed", 2), HALF_DONE), 300)
