"""The range a user asks for: six ways to write it, one value each; and where a first generation starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from rewind.core import times
from rewind.core.errors import RefusedError
from rewind.core.offsets import Vector, from_spark_json, topic_of

FORMS = "earliest, live, 2025-09-04T07:00:00Z, P9D, shift-by:-1000, or offsets JSON"
POSITION = rf"earliest|live|shift-by:-?\d+|{times.DURATION}|{times.INSTANT}|\{{[\s\S]*\}}"
"""How a position looks; whether it is one, `check` says."""
REPLAY_FORMS = "earliest, 2025-09-04T07:00:00Z, or offsets JSON"
REPLAY = rf"earliest|{times.INSTANT}|\{{[\s\S]*\}}"
"""How the position looks from which consumer groups read again."""
ORIGIN_FORMS = "earliest, latest, group:NAME or checkpoint:PATH"
ORIGIN = r"earliest|latest|group:[a-zA-Z0-9_][a-zA-Z0-9._-]*|checkpoint:.+"
"""How the start of a first generation looks."""
_ANY_TIME = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Earliest:
    """From the first record that the mirror holds."""


@dataclass(frozen=True)
class FromLive:
    """From live's own position: a release without history."""


@dataclass(frozen=True)
class At:
    """From the first record whose Kafka timestamp is at or after an instant."""

    instant: datetime


@dataclass(frozen=True)
class ShiftBy:
    """From live's position moved by a count of offsets in each partition, negative for backwards."""

    offsets: int


@dataclass(frozen=True)
class Exactly:
    """From the offsets given; every partition of the topic must be named."""

    vector: Vector


Asked = Earliest | FromLive | At | ShiftBy | Exactly


def parse(text: str, topic: str, field: str, now: datetime) -> Asked:
    """Return what a user asked for.

    Args:
        text: One of the forms in `FORMS`.
        topic: Source topic, for the offsets form.
        field: Name of the parameter, for the error.
        now: The instant that a duration counts back from.

    Raises:
        RefusedError: None of the forms, or a form with a bad value.
    """
    text = text.strip()
    if text == "earliest":
        return Earliest()
    if text == "live":
        return FromLive()
    if text.startswith("{"):
        return Exactly(from_spark_json(text, topic, field))
    if text.startswith("shift-by:"):
        return ShiftBy(_shift(text.removeprefix("shift-by:"), field))
    if text.startswith("P"):
        return At(now - times.parse_duration(text, field))
    if text[:1].isdigit():
        return At(times.parse_instant(text, field))
    raise RefusedError(field, f"{text!r} is not a position", f"Write {FORMS}")


def check(text: str, field: str) -> None:
    """Check all of a position that can be known without the world: before anything is started.

    Raises:
        RefusedError: As `parse`; any topic may stand in offsets.
    """
    parse(text, topic_of(text), field, _ANY_TIME)


def check_replay(text: str, field: str) -> None:
    """Check the position from which consumer groups read again, as `check` does.

    Raises:
        RefusedError: It is none, or one that no group reads from.
    """
    parse(text, topic_of(text), field, _ANY_TIME)
    if not re.fullmatch(REPLAY, text.strip()):
        raise RefusedError(field, f"{text!r} is not a position of a consumer group", f"Write {REPLAY_FORMS}")


def check_origin(text: str, field: str) -> None:
    """Check where a first generation is to start.

    Raises:
        RefusedError: None of the forms in `ORIGIN_FORMS`.
    """
    if not re.fullmatch(ORIGIN, text):
        raise RefusedError(field, f"{text!r} is no start", f"Write {ORIGIN_FORMS}")


def _shift(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RefusedError(field, f"{text!r} is not an integer", "Write shift-by:-1000") from None
