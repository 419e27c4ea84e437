"""Processes of the local stack: started in sessions of their own, known by pid and start time.

A pid alone is not an identity, since the kernel hands it out again. With the start time of
`/proc/<pid>/stat` it is one, so nothing that another program started can be taken for ours or stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rewind.core.errors import RewindError
from rewind.local import process_table
from rewind.local.process_table import ENDED
from rewind.local.watched import Watched

POLL_SECONDS = 0.1
TAIL_LINES = 15
RESTART_SECONDS = 10


@dataclass(frozen=True)
class Command:
    """A process that should run.

    Attributes:
        name: Its name in `status` and `logs`.
        argv: Program and arguments.
        environment: Its whole environment.
        log: File that receives what it prints.
        cwd: Folder it runs in.
        reads: Its configuration files: when they change it has to start anew.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    cwd: Path
    reads: Sequence[Path] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of what a restart would change; nothing that differs only with the caller's terminal."""
        ours = {key: value for key, value in self.environment.items() if key.startswith(("REWIND_", "AIRFLOW_"))}
        files = [path.read_text() for path in self.reads]
        return hashlib.sha256(json.dumps([list(self.argv), ours, files], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Process:
    """A process that was started.

    Attributes:
        name: Its name in `status` and `logs`.
        pid: Its id, that of its session and of its process group.
        started: Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
        began: Start time in seconds since the epoch.
        log: File that receives what it prints.
        fingerprint: Digest of the command it was started with.
    """

    name: str
    pid: int
    started: int
    began: float
    log: str
    fingerprint: str

    @property
    def alive(self) -> bool:
        """Whether exactly this process runs."""
        found = process_table.entry(self.pid)
        return found is not None and found.started == self.started and found.state not in ENDED

    @property
    def watched(self) -> Watched:
        """The process as one that a wait depends on: nobody starts it anew by itself."""
        hint = "make up starts it again"
        return Watched(self.name, (self.pid,) if self.alive else (), (Path(self.log),), replaced=False, hint=hint)

    def members(self) -> list[int]:
        """Return the pids of all that runs in its session, itself included."""
        own = process_table.entry(self.pid)
        if own is not None and own.started != self.started:
            return []  # The pid was handed out again, which the kernel does only when the session is empty.
        table = process_table.entries().values()
        return [found.pid for found in table if found.session == self.pid and found.state not in ENDED]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all that runs in its session."""
        for pid in self.members():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def start(command: Command) -> Process:
    """Start a process in a new session, its output appended to its log."""
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log:
        child = subprocess.Popen(
            list(command.argv),
            env=dict(command.environment),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It outlives this program on purpose; without a return code Popen warns when it is collected.
    child.returncode = 0
    found = process_table.entry(child.pid)
    started = found.started if found else 0
    return Process(command.name, child.pid, started, time.time(), str(command.log), command.fingerprint)


def stop(running: Iterable[Process], patience: float) -> None:
    """Ask processes to end, all at once, and kill what is left of their sessions after `patience` seconds."""
    wanted = list(running)
    for process in wanted:
        process.signal(signal.SIGTERM)
    if not _ended_within(wanted, patience):
        kill(wanted)


def kill(running: Iterable[Process]) -> None:
    """Kill processes and all that runs in their sessions, and wait until they are gone.

    Raises:
        RewindError: Something could not be killed.
    """
    wanted = list(running)
    for process in wanted:
        process.signal(signal.SIGKILL)
    if not _ended_within(wanted, 10):
        left = [pid for process in wanted for pid in process.members()]
        raise RewindError(f"the processes {left} do not end. Look at them with `ps`")


def last_lines(log: Path) -> str:
    """Return the end of a log, headed by its path."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"The end of {log}:", *(f"  {line}" for line in lines[-TAIL_LINES:])])


def save(process: Process, folder: Path) -> None:
    """Record a process in the folder of the stack's state, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{process.name}.json"
    draft.write_text(json.dumps(asdict(process), indent=2))
    draft.replace(folder / f"{process.name}.json")


def load(name: str, folder: Path) -> Process | None:
    """Return the recorded process of that name, else None."""
    record = folder / f"{name}.json"
    return Process(**json.loads(record.read_text())) if record.exists() else None


def ensure(commands: Sequence[Command], folder: Path) -> list[Process]:
    """Return the processes of `commands`: those recorded in `folder` that run as asked, and the others started anew."""
    known = [load(command.name, folder) for command in commands]
    kept = [
        process if process and _runs_as(command, process) else None
        for command, process in zip(commands, known, strict=True)
    ]
    stop([process for process in known if process is not None and process not in kept], RESTART_SECONDS)
    return [process or _start_and_save(command, folder) for command, process in zip(commands, kept, strict=True)]


def _runs_as(command: Command, process: Process) -> bool:
    return process.alive and process.fingerprint == command.fingerprint


def _start_and_save(command: Command, folder: Path) -> Process:
    process = start(command)
    save(process, folder)
    return process


def _ended_within(wanted: Sequence[Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process.members() for process in wanted):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    for process in wanted:
        _reap(process.pid)
    return True


def _reap(pid: int) -> None:
    """Take the exit status of a child of this very program, so that it does not stay as a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
