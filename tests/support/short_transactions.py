"""No registry transaction holds a slow call: the pytest plugin of all tiers (ADR 0033).

Whatever the product does between the beginning and the end of a transaction, a snapshot or a write, must be quick: on
SQLite everybody else waits for a writer. A slow call (`slow_calls`) within one raises, and fails the test even where
somebody catches what it raised. A transaction that a test opens for itself may hold what it likes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import held_transactions
from tests.support.held_transactions import told

FAKES = (
    ("tests.support.fakes", "FakeBroker"),
    ("tests.support.fake_ports", "FakeMirror"),
    ("tests.support.page_states", "Ends"),
)
"""Classes of the tests that stand in for Kafka and the mirror: a call of theirs is as slow as what it stands for."""


def pytest_configure(config: pytest.Config) -> None:
    held_transactions.arm(FAKES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test during which a slow call was stopped, whoever caught that."""
    told.take()
    yield
    assert not (calls := told.take()), "\n".join(calls)
