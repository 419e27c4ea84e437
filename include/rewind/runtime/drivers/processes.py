"""Processes of this host: signalled only when they are the ones meant, found by what they carry, waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from rewind.registry.leases import Process, process_of

TERM_SECONDS = 2.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.1


def send(processes: Iterable[Process], which: signal.Signals) -> None:
    """Signal those that live: never another process that was given the pid of one."""
    for process in processes:
        if process_of(process.pid) == process:
            os.kill(process.pid, which)


def gone(processes: Iterable[Process], timeout: float) -> bool:
    """Return whether all have ended, or end within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while any(process_of(p.pid) == p for p in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def marked(variable: str, value: str) -> list[Process]:
    """Return the living processes that were started with a variable in their environment, in whatever session.

    All that they start inherits it, so that a driver is found although the submit that started it is gone.
    """
    return by_mark(variable).get(value, [])


def by_mark(variable: str) -> dict[str, list[Process]]:
    """Return the living processes that were started with a variable in their environment, by its value."""
    found: dict[str, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        carried = [text for text in _environment(entry) if text.startswith(f"{variable}=".encode())]
        process = process_of(int(entry.name)) if carried else None
        if process is not None:
            found.setdefault(carried[0].decode(errors="replace").partition("=")[2], []).append(process)
    return found


def end(processes: Iterable[Process]) -> bool:
    """End processes, by force those that are deaf, and return whether all are gone."""
    wanted = list(processes)
    send(wanted, signal.SIGTERM)
    return gone(wanted, TERM_SECONDS) or kill(wanted)


def kill(processes: Iterable[Process]) -> bool:
    """End processes by force and return whether all are gone."""
    wanted = list(processes)
    send(wanted, signal.SIGKILL)
    return gone(wanted, KILL_SECONDS)


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
    except OSError:
        # It has ended, or is another user's.
        return []
