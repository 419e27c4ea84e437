"""Which registry transactions this thread is in, and what stops a slow call within one (ADR 0033).

For every process that runs code of the product under test: pytest's (`short_transactions`) and the drivers of the warm
JVM (`warm_submit`), which do without pytest.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Connection, Engine, event

from tests.support import slow_calls

TESTS = str(Path(__file__).resolve().parents[1])
OPENED_BY = {
    *(("rewind.registry.database", name) for name in ("reading", "writing")),
    ("rewind.registry.snapshot", "snapshot"),
}
"""The functions that open what is watched, by module and name."""


class SlowCallError(AssertionError):
    """A registry transaction held a slow call."""


@dataclass
class Told:
    """The slow calls that were stopped since they were last taken."""

    calls: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        """Return them, and forget them."""
        taken, self.calls = self.calls, []
        return taken


class _Held(threading.local):
    """The transactions of the product that this thread is in, with where each was opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[weakref.ref[Connection], str]] = []

    def sites(self) -> list[str]:
        if self.opened:
            self.opened = [(one, site) for one, site in self.opened if (it := one()) is not None and not it.closed]
        return [site for _, site in self.opened]


told, _held, _armed = Told(), _Held(), threading.Event()


def arm(fakes: Sequence[tuple[str, str]] = ()) -> None:
    """Watch the transactions of this process from now on; the tests' own stands-in for what is slow count as slow."""
    if _armed.is_set():
        return
    _armed.set()
    event.listen(Engine, "engine_connect", _entered)
    slow_calls.watch(_stopped, lambda: bool(_held.sites()), fakes)


def _entered(connection: Connection) -> None:
    site = _site()
    if site is not None:
        _held.opened.append((weakref.ref(connection), site))


def _site() -> str | None:
    """Return where a transaction is being opened; None when it is none of the registry's, or a test's own."""
    frames = list(_outwards(sys._getframe(2)))
    opener = next((n for n, frame in enumerate(frames) if _name(frame) in OPENED_BY), None)
    if opener is None:
        return None
    frame = next(frame for frame in frames[opener + 1 :] if _name(frame)[0] != "contextlib")
    return None if frame.f_code.co_filename.startswith(TESTS) else f"{_name(frame)[0]}:{frame.f_lineno}"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> tuple[Any, str]:
    return frame.f_globals.get("__name__"), frame.f_code.co_name


def _stopped(call: str) -> None:
    message = f"{call}: within the registry transaction of {_held.sites()[-1]}"
    told.calls.append(message)
    raise SlowCallError(message)
