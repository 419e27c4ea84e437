"""A driver that was frozen and declared dead wakes beside its successor; at more points: WHAT=safety."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.frozen_writer import Life
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_woken_driver_writes_at_most_its_batch_and_ends(
    workshop: Callable[..., Workshop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop("woken", 2)
    life = Life(shop, shop.deploy(), monkeypatch)
    assert life.through("before:batch.write") <= 1
    life.check()
