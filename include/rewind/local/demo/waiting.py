"""Wait for things that others do, for so long and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rewind.core.errors import RetryError, RewindError

POLL_SECONDS = 0.5

T = TypeVar("T")


class DemoError(RewindError):
    """Something was not as it should be."""


def until(what: str, look: Callable[[], T | None], seconds: float, pause: float = POLL_SECONDS) -> T:
    """Look again and again until there is something to see, and return it.

    Raises:
        DemoError: There was nothing in time; with the last reason, when the world did not answer.
    """
    deadline, why = time.monotonic() + seconds, ""
    while True:
        try:
            found = look()
        except RetryError as away:
            found, why = None, f": {away}"
        if found:
            return found
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not happen within {seconds:.0f} s{why}")
        time.sleep(pause)
