"""A notifier that keeps what it is told."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseNotifier


class Recorder(BaseNotifier):
    """Keeps each message, rendered."""

    template_fields = ("message",)
    told: ClassVar[list[str]] = []

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def notify(self, _context: Any) -> None:
        self.told.append(self.message)


class Broken(BaseNotifier):
    """Cannot render what it is to send."""

    template_fields = ("message",)
    message = "{{ nothing.at.all }}"

    def notify(self, _context: Any) -> None:
        raise AssertionError("never got here")
