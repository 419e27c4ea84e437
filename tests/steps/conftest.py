"""Steps and streams as processes of their own, over the tests' warm JVM: what starting one shows, `process` shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rewind.runtime.drivers import submit
from tests.support.warm import WarmJvm


@pytest.fixture(autouse=True)
def warm(warm_jvm: WarmJvm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Submit into the warm JVM; what a killed driver left running there ends with the test."""
    monkeypatch.setattr(submit, "command", warm_jvm.command)
    yield
    warm_jvm.stop_queries()
