"""The process table of this host, as `/proc/<pid>/stat` shows it (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ENDED = "ZX"
"""States of a process that has ended and whose parent has not asked for its exit status yet."""
STOPPED = "Tt"
"""States of a process that a signal or a debugger has stopped."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Entry:
    """One process.

    Attributes:
        pid: Its id.
        parent: Id of its parent.
        session: Id of its session.
        state: R, S, D, T, Z and so on, as `ps` shows it.
        started: Start time in clock ticks since boot: with the id it tells a process from later ones.
        cpu: CPU seconds that it has used, and those of its children that have ended.
    """

    pid: int
    parent: int
    session: int
    state: str
    started: int
    cpu: float


def entry(pid: int) -> Entry | None:
    """Return a process, None when there is none of that id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may itself hold blanks and brackets: what follows the last one is regular.
    fields = text[text.rindex(")") + 2 :].split()
    cpu = sum(map(int, fields[11:15])) / _TICKS
    return Entry(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]), cpu)


def entries() -> dict[int, Entry]:
    """Return all processes by id."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid: found for pid in pids if (found := entry(pid)) is not None}


def trees(table: Mapping[int, Entry], pids: Iterable[int]) -> list[Entry]:
    """Return processes and all their descendants, each once, in the order of the ids that are given."""
    children: dict[int, list[int]] = {}
    for found in table.values():
        children.setdefault(found.parent, []).append(found.pid)
    wanted, queue = dict.fromkeys(pids), list(pids)
    while queue:
        below = [pid for pid in children.get(queue.pop(), ()) if pid not in wanted]
        wanted.update(dict.fromkeys(below))
        queue += below
    return [table[pid] for pid in wanted if pid in table]
