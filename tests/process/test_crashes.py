"""A rewind whose steps are killed at some of their side effects ends as one without; all of them: WHAT=safety."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.crashes import HALF_DONE, Life, check
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_200)]


def test_half_done_work_converges(workshop: Callable[..., Workshop]) -> None:
    check(Life(workshop("killed", 2), HALF_DONE), 300)
