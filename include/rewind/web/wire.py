"""What travels to a browser: JSON whose numbers it can hold, with a tag that tells whether anything changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from rewind.views.status import plain

LARGEST = 2**53 - 1
"""The largest whole number that a browser keeps exact; what is beyond travels as text."""
CLOCK, AGE = "at", "age_seconds"
"""The instant of a body and the ages in it change with the clock alone; a browser counts them on by itself."""


def wire(value: Any) -> Any:
    """Return a value in the types of JSON, whole numbers that a browser would round as text."""
    return _exact(plain(value))


def encoded(body: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a body as JSON and its tag, which stays the same while only the clock has moved."""
    still = _ageless({key: item for key, item in body.items() if key != CLOCK})
    tag = hashlib.sha256(json.dumps(still).encode()).hexdigest()[:16]
    return json.dumps(body, separators=(",", ":")).encode(), f'"{tag}"'


class Kept:
    """What was last encoded, for all who ask for the same."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: tuple[object, dict[Hashable, tuple[bytes, str]]] = (None, {})

    def encoded(self, source: object, part: Hashable, body: Callable[[], Mapping[str, Any]]) -> tuple[bytes, str]:
        """Return the body that is made from a part of a source as `encoded` does.

        It is made once for each part as long as the source is the same.
        """
        kept = self._kept
        if kept[0] is not source:
            kept = self._kept = (source, {})
        if part not in kept[1]:
            kept[1][part] = encoded(body())
        return kept[1][part]


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole and abs(value) > LARGEST else value


def _ageless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ageless(item) for key, item in value.items() if key != AGE}
    return [_ageless(item) for item in value] if isinstance(value, list) else value
