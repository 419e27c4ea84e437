"""Whether a broker listens and lets us in, asked before its client tries for long."""

from __future__ import annotations

import socket

from rewind.core.errors import RefusedError
from rewind.core.model import Topic, TopicReader
from rewind.core.settings import Settings
from rewind.runtime.kafka import kafka_access, kafka_probe
from rewind.runtime.kafka.broker import Broker

CONNECT_SECONDS = 1.0


class Closed:
    """A broker that does not let us in."""

    def __init__(self, why: RefusedError) -> None:
        """Keep the reason."""
        self._why = why

    def topic(self, name: str) -> Topic | None:  # noqa: ARG002 - as every broker is asked
        """Refuse to tell of a topic.

        Raises:
            RefusedError: Always: the reason.
        """
        raise self._why


def broker(settings: Settings) -> TopicReader | None:
    """Return the broker, None when nothing listens at its addresses: its client would try for long."""
    if not any(_listens(address) for address in settings.bootstrap.split(",")):
        return None
    try:
        refused = kafka_probe.why_refused(kafka_access.python_options(settings))
        return Broker(settings) if refused is None else Closed(refused)
    except RefusedError as unusable:
        return Closed(unusable)


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
