"""Processes that a wait depends on: whether they are able to work, how much they have, and what their logs say."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rewind.local import process_table
from rewind.local.process_table import ENDED, STOPPED, Entry

TAIL_BYTES = 64 * 1024
LINE = 300
"""Characters of a log line that are quoted."""
SIGNS = ("ERROR", "Error", "Exception", "FATAL", "Traceback")


@dataclass(frozen=True)
class Watched:
    """A process, or several that work as one, with all that they have started.

    Attributes:
        name: What it is called, as "driver of visits_converter-g1".
        pids: Its processes; empty when it is gone.
        logs: Where it writes, the likeliest place of an error first.
        replaced: Whether somebody starts another one when it is gone.
        hint: What to do when it is gone.
    """

    name: str
    pids: tuple[int, ...]
    logs: tuple[Path, ...] = ()
    replaced: bool = True
    hint: str = "Airflow starts another one: make logs NAME=scheduler shows whether it does"


def problem(watched: Watched, table: Mapping[int, Entry]) -> str:
    """Return why a process is not able to work, as it goes on from its name; empty when it is, or will be replaced."""
    found = process_table.trees(table, watched.pids)
    stopped = next((e for e in found if e.state in STOPPED), None)
    if stopped is not None:
        return f"pid {stopped.pid}, is stopped (state {stopped.state})"
    if any(entry.state not in ENDED for entry in found):
        return ""
    if watched.replaced:
        return ""
    return f"pid {watched.pids[0]}, is a zombie (state Z)" if found else "is gone"


def cpu(watched: Iterable[Watched], table: Mapping[int, Entry]) -> dict[Hashable, float]:
    """Return the CPU seconds of processes and their descendants, each with its start as its identity."""
    found = (entry for one in watched for entry in process_table.trees(table, one.pids))
    return {(entry.pid, entry.started): entry.cpu for entry in found}


def report(watched: Watched, table: Mapping[int, Entry]) -> str:
    """Return in one line how a process is, what its log says last, and what to do."""
    there = any(entry.state not in ENDED for entry in process_table.trees(table, watched.pids))
    wrong = problem(watched, table) or ("" if there else "is gone")
    if not wrong:
        return f"{watched.name}, pid {watched.pids[0]}, lives{_quoted(watched)}"
    joint = ", " if wrong.startswith("pid ") else " "
    return f"{watched.name}{joint}{wrong}{_quoted(watched)}. {_hint(watched, table)}"


def _hint(watched: Watched, table: Mapping[int, Entry]) -> str:
    stopped = [e.pid for e in process_table.trees(table, watched.pids) if e.state in STOPPED]
    return f"Continue it: kill -CONT {' '.join(map(str, stopped))}" if stopped else watched.hint


def _quoted(watched: Watched) -> str:
    for log in watched.logs:
        line = last_line(log)
        if line:
            return f"; {log} ends: {line}"
    return ""


def last_line(log: Path) -> str:
    """Return the last line of a log that speaks of an error, else its last one; empty when it has none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if any(sign in line for sign in SIGNS)]
    return (errors or lines or [""])[-1][:LINE]
