"""Consumer groups keep their place over a switch and a rollback; twenty of them: WHAT=safety."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios import readers
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_readers_resume_after_a_switch_and_a_rollback(workshop: Callable[..., Workshop]) -> None:
    found = readers.check(workshop("read", 2), readers=3, records=90, seed=1)
    assert found["groups"] == 3
    assert found["repeats"] > 0
    assert found["left_out"] > 0
