"""The mirror across kills of its driver: exactly once, and one writer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from rewind.adapters.mirror_reader import read_state
from rewind.runtime.drivers import submit, supervise
from rewind.runtime.kafka.broker import Broker
from tests.scenarios.mirroring import kill_and_compare
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]


def test_the_mirror_equals_the_topic_across_kills_and_has_one_writer(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("mirrored", 3)
    kill_and_compare(shop, spark, kills=3, records=2_100, seed=7)
    topic = Broker(shop.settings).topic(shop.topic)
    assert topic is not None
    state = read_state(shop.settings, topic, transactional=False)
    assert state is not None
    assert (state.records, state.end(), state.holes) == (2_100, {0: 700, 1: 700, 2: 700}, {0: [], 1: [], 2: []})

    made = supervise.submit_of(shop.settings, shop.mirror, "mirror", 99)
    second = subprocess.run(
        submit.command(made), env=submit.environment(made), capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 73
    assert f"LeaseHeldError: {shop.mirror}: another process of this host holds its lock" in second.stdout
