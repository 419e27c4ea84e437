"""A whole life by real spark-submits, as Airflow would start them: from the first deployment to collected garbage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.crashes import Life, check
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

KILLED = (("backfill", "after:chunk.write"),)
"""Where one JVM is lost with its work half done; at each side effect of each step: `make accept WHAT=safety`."""


def test_a_life_by_real_submits(workshop: Callable[..., Workshop]) -> None:
    check(Life(workshop("whole", 2), KILLED), 300)
