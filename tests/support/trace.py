"""What a step changes, seen from below its own code, and at which named point it was changed.

Calls tell what this process does: each SQL statement that writes, each writing call of the Kafka clients, each file
that is opened to write, made, renamed or removed (an audit hook sees those system calls of Python). What its JVM does
shows in the world, which is looked at on the way into and out of each point: whatever differs between a way out and the
next way in was done outside of one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from sqlalchemy import Engine, event

BOOKKEEPING = {
    "steps": "each attempt has a row of its own, and one that was killed counts for nothing",
    "leases": "processes prove a lease, not its row: taken again it gets the next token",
}
"""Tables that are written outside of a named point, and why a crash there changes nothing."""
NOBODYS = ("locks", "logs", "registry.db", "warehouse", "kafka", "stack")
"""What of a home is written by the kernel's lock, by loggers, by the registry and the broker in their own time."""

Snapshot = dict[str, object]

_SQL = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|REPLACE\s+INTO|CREATE|DROP|ALTER)\s+(\S+)", re.IGNORECASE)
_ADMIN = re.compile(r"(create|delete|alter|reset|remove|update|elect|abort)_")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FILE_EVENTS = frozenset(
    ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate")
)


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Trace:
    """Which points a run passed, and what changed outside them.

    Attributes:
        look: Describes the world; None where nothing is to be traced.
        home: Folder whose files count.
        points: Names in the order they were passed.
        unnamed: What changed while no point was being passed.
        crash_at: Where to crash: a moment, and at which passing of it; None for nowhere.
    """

    look: Callable[[], Snapshot] | None = None
    home: Path = Path("/nowhere")
    points: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    crash_at: tuple[str, int] | None = None
    _depth: int = 0
    _last: Snapshot = field(default_factory=dict)
    _passed: list[str] = field(default_factory=list)

    def reach(self, moment: str) -> None:
        """Stand for `crash._reach`."""
        self._passed.append(moment)
        if self.crash_at is not None and (moment, self._passed.count(moment)) == self.crash_at:
            raise Crash(moment)
        when, _, name = moment.partition(":")
        if when == "before":
            self.points.append(name)
            if self._depth == 0:
                self._compare(f"before {name}")
        self._depth += 1 if when == "before" else -1
        if self._depth == 0 and self.look is not None:
            self._last = self.look()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Trace what is done meanwhile."""
        if self.look is None:
            yield
            return
        self._last = self.look()
        with ExitStack() as stack:
            stack.enter_context(_sql(self._saw))
            for client, method in _kafka_writers():
                stack.enter_context(_wrapped(client, method, self._saw))
            stack.enter_context(_files(self.home, self._saw))
            yield
        self._compare("at the end")

    def _saw(self, change: str) -> None:
        if self._depth == 0:
            after = self.points[-1] if self.points else "nothing"
            self.unnamed.append(f"{change} (after {after})")

    def _compare(self, where: str) -> None:
        if self.look is None:
            return
        found = self.look()
        changed = sorted(name for name in self._last.keys() | found.keys() if self._last.get(name) != found.get(name))
        self.unnamed += [f"{name} ({where})" for name in changed if name.split()[1] not in BOOKKEEPING]


@contextmanager
def _sql(saw: Callable[[str], None]) -> Iterator[None]:
    def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found = _SQL.match(statement)
        if found is not None and found.group(1) not in BOOKKEEPING:
            saw(f"sql {' '.join(statement.split())}")

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", executed)


def _kafka_writers() -> list[tuple[type, str]]:
    admin = [(KafkaAdminClient, name) for name in dir(KafkaAdminClient) if _ADMIN.match(name)]
    consumer = [(KafkaConsumer, "commit"), (KafkaConsumer, "commit_async")]
    return [*admin, *consumer, (KafkaProducer, "send"), (KafkaProducer, "send_offsets_to_transaction")]


def _wrapped(client: type, method: str, saw: Callable[[str], None]) -> Any:
    real = getattr(client, method)

    def seen(self: Any, *arguments: Any, **named: Any) -> Any:
        saw(f"kafka {client.__name__}.{method} {arguments}")
        return real(self, *arguments, **named)

    return mock.patch.object(client, method, seen)


_watched: list[tuple[str, Callable[[str], None]]] = []
_hooked: list[bool] = []


@contextmanager
def _files(home: Path, saw: Callable[[str], None]) -> Iterator[None]:
    if not _hooked:
        # An audit hook stays for the life of the process: it does nothing while nobody watches.
        sys.addaudithook(_hook)
        _hooked.append(True)
    watcher = (f"{home}/", saw)
    _watched.append(watcher)
    try:
        yield
    finally:
        _watched.remove(watcher)


def _hook(name: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or name not in _FILE_EVENTS or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    if name == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
        return
    path = os.fsdecode(arguments[0])
    for home, saw in _watched:
        if path.startswith(home) and not path.removeprefix(home).startswith(NOBODYS):
            saw(f"call {name} {path}")
