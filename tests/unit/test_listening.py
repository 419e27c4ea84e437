"""Whether a broker listens and lets us in, as views of the state ask it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rewind.core.errors import RefusedError
from rewind.runtime.kafka import kafka_probe, reachability
from rewind.runtime.kafka.broker import Broker


@pytest.fixture
def address() -> Iterator[str]:
    """Address of a port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_where_nothing_listens_there_is_no_broker(make_settings):
    assert reachability.broker(make_settings("127.0.0.1:1")) is None


def test_a_broker_that_lets_us_in_is_asked(make_settings, address, monkeypatch):
    monkeypatch.setattr(kafka_probe, "why_refused", lambda _: None)
    assert isinstance(reachability.broker(make_settings(address)), Broker)


def test_one_that_does_not_gives_its_reason_for_each_topic(make_settings, address, tmp_path, monkeypatch):
    why = RefusedError("REWIND_KAFKA_OPTIONS_FILE", "the login is refused", "Fix it")
    monkeypatch.setattr(kafka_probe, "why_refused", lambda _: why)
    with pytest.raises(RefusedError, match="the login is refused"):
        reachability.broker(make_settings(address)).topic("visits")
    missing = make_settings(address, REWIND_KAFKA_OPTIONS_FILE=str(tmp_path / "none"))
    with pytest.raises(RefusedError, match="cannot be read"):
        reachability.broker(missing).topic("visits")
