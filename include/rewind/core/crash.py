"""Crash points: each side effect passes through one, so that a test can end the process there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "REWIND_CRASH_AT"


@contextmanager
def side_effect(name: str) -> Iterator[None]:
    """Run the body as the named side effect.

    With `REWIND_CRASH_AT=before:NAME` or `after:NAME` the process ends by SIGKILL there.
    """
    _maybe_crash(f"before:{name}")
    yield
    _maybe_crash(f"after:{name}")


def _maybe_crash(point: str) -> None:
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
