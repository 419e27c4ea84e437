from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewind.core.errors import RefusedError
from rewind.local import ports

FIELD = "REWIND_KAFKA_PORT"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(ports, "RELEASE_SECONDS", 0.0)
    with socket.create_server((ports.HOST, 0)) as server:
        yield server.getsockname()[1]


def test_a_chosen_port_that_is_taken_is_refused_with_field_and_cure(taken: int, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as raised:
        ports.choose(FIELD, taken, tmp_path / "ports.json")

    assert raised.value.field == FIELD
    assert str(taken) in raised.value.problem
    assert f"{FIELD}=<port>" in raised.value.cure
    assert not (tmp_path / "ports.json").exists()


def test_a_free_port_is_remembered(tmp_path: Path) -> None:
    state = tmp_path / "ports.json"
    first = ports.choose(FIELD, None, state)

    assert ports.choose(FIELD, None, state) == first
    assert ports.remembered(FIELD, state) == first
    assert ports.choose("REWIND_AIRFLOW_PORT", None, state) != first


def test_a_remembered_port_that_is_taken_is_replaced(taken: int, tmp_path: Path) -> None:
    state = tmp_path / "ports.json"
    state.write_text(f'{{"{FIELD}": {taken}}}')

    assert ports.choose(FIELD, None, state) != taken


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1", "80.5"])
def test_what_is_not_a_port_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=f"{FIELD}: '{text}' is not a port"):
        ports.parse(FIELD, text)


def test_no_text_is_no_choice() -> None:
    assert ports.parse(FIELD, None) is None
    assert ports.parse(FIELD, "") is None
    assert ports.parse(FIELD, "9092") == 9092
