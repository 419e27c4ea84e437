"""Whether a broker listens at all, asked before its client tries for long."""

from __future__ import annotations

import socket

from rewind.control.broker import Broker
from rewind.core.settings import Settings

CONNECT_SECONDS = 1.0


def broker(settings: Settings) -> Broker | None:
    """Return the broker, None when nothing listens at its addresses: its client would try for long."""
    return Broker(settings) if any(_listens(address) for address in settings.bootstrap.split(",")) else None


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
