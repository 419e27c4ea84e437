"""Ports of the local stack: chosen by the user, else those of last time, else free ones."""

from __future__ import annotations

import json
import secrets
import socket
import time
from pathlib import Path

from rewind.core.errors import RefusedError

HOST = "127.0.0.1"
# Below the kernel's range for outgoing connections, so that none of them takes the port between two starts.
FIRST, LAST = 20000, 32000
RELEASE_SECONDS = 5.0
POLL_SECONDS = 0.1


def choose(field: str, chosen: int | None, state: Path) -> int:
    """Return the port of `field`, and remember it in the file `state`.

    Args:
        field: Name of the setting, under which the port is remembered.
        chosen: The port that the user asks for, if any.
        state: JSON file of remembered ports.

    Raises:
        RefusedError: The chosen port is taken.
    """
    port = _checked(field, chosen) if chosen is not None else _usable(remembered(field, state))
    others = json.loads(state.read_text()) if state.exists() else {}
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps(others | {field: port}, indent=2))
    return port


def remembered(field: str, state: Path) -> int | None:
    """Return the port that `choose` returned last for the field, None when there was none."""
    ports: dict[str, int] = json.loads(state.read_text()) if state.exists() else {}
    return ports.get(field)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def parse(field: str, text: str | None) -> int | None:
    """Return the port that a variable of the environment names, None when it is not set.

    Raises:
        RefusedError: It is not a port.
    """
    if not text:
        return None
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise RefusedError(field, f"{text!r} is not a port", "Give a number from 1 to 65535")
    return int(text)


def _checked(field: str, port: int) -> int:
    if not is_free(port):
        cure = f"Choose another with {field}=<port>, or stop what listens there (`ss -ltnp | grep {port}`)"
        raise RefusedError(field, f"port {port} is taken by another program", cure)
    return port


def _usable(last: int | None) -> int:
    if last is not None and _becomes_free(last):
        return last
    candidates = (FIRST + secrets.randbelow(LAST - FIRST) for _ in range(1000))
    return next(port for port in candidates if is_free(port))


def _becomes_free(port: int) -> bool:
    """Tell whether the port is free within a moment: a killed process may hold it that long."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
