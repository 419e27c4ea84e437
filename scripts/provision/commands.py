"""Programs that set-up runs: their output in a file each, watched while they run, stopped together.

A program holds the set-up's lock as long as it runs, and writes to a file rather than to a pipe: when set-up alone is
killed, what it had started ends its work undisturbed, and the next set-up waits for it.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from provision import failures
from provision.places import LOGS

POLL_SECONDS = 0.2

_guard = threading.Lock()
_running: set[subprocess.Popen[bytes]] = set()
_state = {"lock": -1, "stopped": False}


def hold(lock: int) -> None:
    """Let all programs inherit the open lock."""
    _state["lock"] = lock


def stop_all() -> None:
    """Stop what runs, and start nothing more."""
    with _guard:
        _state["stopped"] = True
        for child in _running:
            child.terminate()


def run(
    argv: Sequence[str],
    name: str,
    *,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[str], None] | None = None,
    tick: Callable[[int], None] | None = None,
    rooms: Iterable[Path] = (),
    folder: Path | None = None,
) -> str:
    """Run a program to its end.

    Args:
        argv: Program and arguments.
        name: What it does, as failures name it.
        environment: Its whole environment; None for that of set-up.
        watch: Receives each line it prints, soon after.
        tick: Called with its pid several times a second.
        rooms: Folders it writes to that may lie on another disk.
        folder: Folder it runs in; None for that of set-up.

    Returns:
        What it printed.

    Raises:
        SetupError: It failed, or could not be started.
    """
    log = LOGS / f"setup-{name.replace(' ', '-')}.log"
    child = _start(argv, log, environment, folder)
    with log.open(errors="replace") as printed:
        while (code := _wait(child)) is None:
            _pass_on(printed, watch)
            if tick:
                tick(child.pid)
        _pass_on(printed, watch)
    said = log.read_text(errors="replace")
    if code:
        raise failures.explain(name, code, said, log, rooms)
    return said


def _start(
    argv: Sequence[str], log: Path, environment: Mapping[str, str] | None, folder: Path | None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with _guard, log.open("wb") as output:
        if _state["stopped"]:
            raise failures.SetupError("stopped")
        held = (_state["lock"],) if _state["lock"] >= 0 else ()
        child = subprocess.Popen(
            argv,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=held,
        )
        _running.add(child)
        return child


def _wait(child: subprocess.Popen[bytes]) -> int | None:
    try:
        code = child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    with _guard:
        _running.discard(child)
    return code


def _pass_on(printed: TextIO, watch: Callable[[str], None] | None) -> None:
    if watch:
        for line in printed:
            watch(line.strip())
