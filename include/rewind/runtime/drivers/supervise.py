"""Start, find and end the drivers of streams. A driver outlives whoever started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from rewind.core import causes, names
from rewind.core.crash import side_effect
from rewind.core.errors import QuarantineError, RetryError
from rewind.core.settings import Settings
from rewind.registry import generations, leases, streams
from rewind.registry.database import now, reading, writing
from rewind.registry.leases import Holder, Lease, Process
from rewind.registry.streams import Stream
from rewind.runtime.drivers import bundle, processes, submit
from rewind.runtime.drivers.bundle import Bundle

HEALTHY = timedelta(hours=1)
OUTPUT_BYTES = 1_000_000
"""How much of a driver's output is searched for the cause of its end."""

RUNNING, STARTING, WAITING, DRAINING, DRAINED, QUARANTINED = (
    "running",
    "starting",
    "waiting",
    "draining",
    "drained",
    "quarantined",
)

LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/driver.log
appender.file.filePattern = {folder}/driver.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}}{{UTC}}Z %p {owner} %c{{1}} %m%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 5
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True)
class Sighting:
    """What one look at a stream found, or did.

    Attributes:
        state: running, starting, waiting, draining, drained or quarantined.
        message: One line for a log.
    """

    state: str
    message: str


@dataclass(frozen=True)
class Ended:
    """A driver that was found to have ended.

    Attributes:
        launched: Its process, as the registry holds it.
        output: Name of what it wrote; empty when it wrote nothing.
        text: The end of that.
    """

    launched: dict[str, Any] | None
    output: str
    text: str


def look(settings: Settings, owner: str) -> Sighting:
    """Look at a stream once: attach to its driver, or start one when none lives and one is wished for.

    Never starts a second driver: the last one's processes must be gone, whatever the registry says of leases.

    Raises:
        RefusedError: Nothing was ever wished for the stream.
        IntegrityError: Its frozen bundle was changed.
    """
    ended: Ended | None = None
    while True:
        with writing(settings.registry_url) as connection:
            stream = streams.needed(connection, owner)
            seen: Sighting | int | None = _living(connection, stream)
            if seen is None and (stream.launched is None or (ended is not None and ended.launched == stream.launched)):
                seen = _begun(connection, stream, ended)
        if isinstance(seen, Sighting):
            return seen
        if seen is not None:
            return _started(settings, stream, seen)
        # Outside: no transaction waits for a disk. Whether it is this driver that has ended is looked at once more.
        ended = Ended(stream.launched, *_output(settings, owner))


def _started(settings: Settings, stream: Stream, number: int) -> Sighting:
    owner = stream.owner
    try:
        process = launch(settings, owner, stream.kind, number)
    except Exception as error:
        with writing(settings.registry_url) as connection:
            streams.count_failure(connection, owner, causes.of_error(error))
        raise
    return Sighting(STARTING, f"{owner}: started driver {number}, pid {process.pid}")


def launch(settings: Settings, owner: str, kind: str, number: int) -> Process:
    """Start the driver of a stream in a session of its own and record its process."""
    made = submit_of(settings, owner, kind, number)
    folder = log_folder(settings, owner)
    with side_effect("stream.launch"), (folder / f"driver.{number}.out").open("wb") as output:
        started = subprocess.Popen(
            submit.command(made),
            env=submit.environment(made),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
        )
    process = leases.process_of(started.pid) or Process(started.pid, 0)
    try:
        with writing(settings.registry_url) as connection:
            streams.set_launched(connection, owner, leases.placed(process))
    except BaseException:
        # Nobody would know of it, and a second one would be started beside it.
        os.killpg(started.pid, signal.SIGKILL)
        raise
    return process


def submit_of(settings: Settings, owner: str, kind: str, number: int) -> submit.Submit:
    """Return the submit of a stream's driver, from its frozen bundle, with its log in rotating files.

    Raises:
        IntegrityError: The frozen bundle was changed.
    """
    folder = log_folder(settings, owner)
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING.format(folder=folder, owner=owner))
    if kind == streams.MIRROR:
        code, job, arguments = bundle.build(settings, None), "mirror", ["--owner", owner]
    else:
        with reading(settings.registry_url) as connection:
            generation = generations.read(connection, owner)
        code, job, arguments = frozen_bundle(settings, owner, generation.bundle), "stream", ["--job-id", owner]
    options = submit.usual_conf(settings, job)["spark.driver.extraJavaOptions"]
    conf = {"spark.driver.extraJavaOptions": f"{options} -Dlog4j2.configurationFile=file:{logging}".strip()}
    return submit.make(settings, code, job, arguments, name=f"{owner}.{number}", conf=conf)


def generation_folder(settings: Settings, job_id: str) -> Path:
    """Return the folder of a generation."""
    return names.inside(settings.generations, job_id, "job_id")


def checkpoint_folder(settings: Settings, job_id: str) -> Path:
    """Return the checkpoint of a generation."""
    # One that leads to another job's checkpoint would have two queries work in it.
    return names.inside(generation_folder(settings, job_id), "checkpoint", "checkpoint")


def frozen_bundle(settings: Settings, job_id: str, expected: str) -> Bundle:
    """Return the frozen bundle of a generation, each byte checked.

    Raises:
        IntegrityError: It was changed.
    """
    return bundle.verified(generation_folder(settings, job_id) / "bundle", expected)


def log_folder(settings: Settings, owner: str) -> Path:
    """Return the folder of a stream's logs, made if it is missing."""
    folder = names.inside(settings.home / "logs" / "streams", owner, "owner")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def stop_all(settings: Settings, timeout: float = 40) -> None:
    """End all drivers of this host without touching any wish, so that they come back with the stack."""
    with reading(settings.registry_url) as connection:
        owners = streams.all_of(connection)
        held = {s.owner: lease.holder for s in owners if (lease := leases.read(connection, s.owner)) and lease.holder}
    living = {owner: holder for owner, holder in held.items() if holder.processes and leases.alive(holder)}
    # A supervisor that stands in for a driver it is about to start is not ours to end.
    launched = {
        s.owner: p for s in owners if s.launched and (p := leases.here(s.launched)) not in (None, _this_process())
    }
    # The Python driver ends after its batch, and its JVM and spark-submit with it; one that has not yet taken
    # its lease has no batch to finish.
    drivers = [holder.processes[0] for holder in living.values()]
    starting = [process for owner, process in launched.items() if owner not in living]
    processes.send([*drivers, *starting], signal.SIGTERM)
    everything = {*drivers, *launched.values(), *(p for holder in held.values() for p in holder.processes)}
    if not processes.gone(everything, timeout):
        processes.send(everything, signal.SIGKILL)
        processes.gone(everything, 10)
    with writing(settings.registry_url) as connection:
        for stream in owners:
            if stream.launched is not None and leases.here(stream.launched) is not None:
                streams.set_launched(connection, stream.owner, None)


def end(settings: Settings, owner: str, timeout: float = 90) -> None:
    """Wait until the driver of a stream that has been asked to drain has ended.

    Raises:
        RetryError: It lives on.
    """
    deadline = time.monotonic() + timeout
    while True:
        with reading(settings.registry_url) as connection:
            stream = streams.read(connection, owner)
            lease = leases.read(connection, owner)
        held = lease is not None and lease.holder is not None and leases.alive(lease.holder)
        if not held and (stream is None or not streams.starting(stream, lease, now())):
            return
        if time.monotonic() > deadline:
            raise RetryError(f"{owner}: its driver does not end within {timeout:.0f} s: {lease}")
        time.sleep(0.2)


def _living(connection: Connection, stream: Stream) -> Sighting | None:
    """Return what is seen of a driver that lives or starts; None when there is none."""
    lease = leases.read(connection, stream.owner)
    holder = lease.holder if lease is not None else None
    if lease is not None and holder is not None and leases.alive(holder):
        return _attached(connection, stream, _told(lease, holder))
    if streams.starting(stream, lease, now()):
        return Sighting(STARTING, f"{stream.owner}: driver {stream.launched} is starting")
    return None


def _begun(connection: Connection, stream: Stream, ended: Ended | None) -> Sighting | int:
    """Record the end of the last driver, and return the number of the one to start now, or why there is none."""
    if stream.launched is not None and ended is not None and stream.wish == streams.RUN:
        stream = _ended(connection, stream.owner, ended)
    streams.set_launched(connection, stream.owner, None)
    blocked = _blocked(stream)
    if blocked is not None:
        return blocked
    number = streams.count_start(connection, stream.owner)
    # Until the driver's own process is known, this one stands for it: a second supervisor must wait.
    streams.set_launched(connection, stream.owner, leases.placed(_this_process()))
    return number


def _attached(connection: Connection, stream: Stream, who: str) -> Sighting:
    if stream.failures and stream.launched_at is not None and now() - stream.launched_at > HEALTHY:
        streams.forgive(connection, stream.owner)
    state = DRAINING if stream.wish == streams.DRAIN else RUNNING
    return Sighting(state, f"{stream.owner}: {state}, {who}")


def _ended(connection: Connection, owner: str, ended: Ended) -> Stream:
    # As `steps.base.recording.run` writes it. An hour without broker would else quarantine every stream.
    cause, told = causes.cause(ended.text), causes.told(ended.text, ended.output)
    if cause.startswith(f"{QuarantineError.__name__}: "):
        return streams.set_aside(connection, owner, told)
    away = cause.startswith(f"{RetryError.__name__}: ")
    return (streams.count_absence if away else streams.count_failure)(connection, owner, told)


def _this_process() -> Process:
    found = leases.process_of(os.getpid())
    assert found is not None
    return found


def _told(lease: Lease, holder: Holder) -> str:
    """Return who holds a lease, and of one on another host whether it has been silent for long."""
    who = f"pid {holder.processes[0].pid}, token {lease.token}"
    if holder.host == socket.gethostname():
        return who
    silence = leases.silent(lease, now())
    if silence is None:
        return f"{who}, on {holder.host}"
    cure = f"if it is gone for good: python -m rewind declare-dead {lease.owner} --token {lease.token} --reason ..."
    return f"{who}, on {holder.host}, of which nothing was heard for {silence.total_seconds():.0f} s; {cure}"


def _blocked(stream: Stream) -> Sighting | None:
    if stream.wish == streams.DRAIN:
        return Sighting(DRAINED, f"{stream.owner}: drained")
    if stream.quarantined_at is not None:
        cure = "fix the cause, then start it again (`python -m rewind run`)"
        return Sighting(
            QUARANTINED, f"{stream.owner}: quarantined after {stream.failures} failures; {cure}; {stream.cause}"
        )
    if stream.next_start_at is not None and timedelta(0) < stream.next_start_at - now() <= streams.LONGEST_PAUSE:
        # A longer pause was never set: the clock was set back since, and the stream would stand still as long.
        told = f"next start at {stream.next_start_at}Z after {stream.failures} failures; {stream.cause}"
        return Sighting(WAITING, f"{stream.owner}: {told}")
    return None


def _output(settings: Settings, owner: str) -> tuple[str, str]:
    """Return the name of what the last driver wrote, and its end."""
    outputs = sorted(log_folder(settings, owner).glob("driver.*.out"), key=lambda p: p.stat().st_mtime)
    if not outputs:
        return "", ""
    with outputs[-1].open("rb") as file:
        file.seek(max(0, outputs[-1].stat().st_size - OUTPUT_BYTES))
        return str(outputs[-1]), file.read().decode(errors="replace")
