"""Crash points: each side effect passes through one, so that a test can end the process there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "REWIND_CRASH_AT"
FREEZE = "REWIND_FREEZE_AT"


@contextmanager
def side_effect(name: str) -> Iterator[None]:
    """Run the body as the named side effect.

    With `REWIND_CRASH_AT=before:NAME` or `after:NAME` the process ends by SIGKILL there. With `REWIND_FREEZE_AT` its
    process group, the JVM with it, stops there by SIGSTOP, once, until somebody lets it go on.
    """
    _reach(f"before:{name}")
    yield
    _reach(f"after:{name}")


def _reach(point: str) -> None:
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get(FREEZE) == point:
        del os.environ[FREEZE]
        os.killpg(os.getpgrp(), signal.SIGSTOP)
