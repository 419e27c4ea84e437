"""The processes of the demo: who drives its streams, what its tasks have submitted, and what all of it rests on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rewind.core.errors import RewindError
from rewind.core.settings import Settings
from rewind.local import processes as local
from rewind.local import stack
from rewind.local.watched import Watched
from rewind.registry import leases, streams
from rewind.registry.leases import Lease
from rewind.registry.snapshot import snapshot
from rewind.registry.streams import Stream
from rewind.runtime.drivers import processes, step_lease

Belongs = Callable[[str], bool]
"""Whether the stream of an owner is the demo's."""


def all_of(settings: Settings, belongs: Belongs) -> list[Watched]:
    """Return every process without which the demo cannot go on.

    Whoever is started by another one of them comes before it: a problem is reported for the first that shows it.
    """
    members = [local.load(name, settings.home / "stack") for name in stack.NAMES]
    started = [*submits(settings), *drivers(settings, belongs), *guests(settings)]
    return [*started, *(process.watched for process in members if process is not None)]


def guests(settings: Settings) -> list[Watched]:
    """Return the producer; its own file of state tells that it has ended."""
    process = local.load("producer", settings.home / "demo" / "processes")
    if process is None or not process.alive:
        return []
    return [Watched(process.name, (process.pid,), (Path(process.log),))]


def drivers(settings: Settings, belongs: Belongs) -> list[Watched]:
    """Return the drivers of streams; none when the registry does not answer. A dead one is replaced."""
    try:
        with snapshot(settings.registry_url) as connection:
            known = [stream for stream in streams.all_of(connection) if belongs(stream.owner)]
            held = leases.read_all(connection, [stream.owner for stream in known])
    except RewindError:
        return []
    return [_driver(settings, stream, held.get(stream.owner)) for stream in known]


def submits(settings: Settings) -> list[Watched]:
    """Return the spark-submits of tasks that run now."""
    prefix = step_lease.mark(settings, "")
    return [
        Watched(f"submit {mark.removeprefix(prefix)}", tuple(p.pid for p in found), _task_logs(settings, mark))
        for mark, found in processes.by_mark(step_lease.VARIABLE).items()
        if mark.startswith(prefix)
    ]


def _driver(settings: Settings, stream: Stream, lease: Lease | None) -> Watched:
    holder = None if lease is None else lease.holder
    if holder is not None and leases.alive(holder):
        pids = tuple(process.pid for process in holder.processes)
    else:
        pids = (stream.launched["pid"],) if stream.launched and leases.lives(stream.launched) else ()
    return Watched(f"driver of {stream.owner}", pids, _newest(settings.home / "logs" / "streams" / stream.owner, "*"))


def _task_logs(settings: Settings, mark: str) -> tuple[Path, ...]:
    step = mark.rpartition(".")[2]
    return _newest(settings.home / "airflow" / "logs", f"dag_id=*/run_id=*/task_id={step}/*")[:1]


def _newest(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Return logs, the one that was written to last first: there stands what happened last."""
    found = [path for path in folder.glob(pattern) if path.suffix in (".log", ".out") and path.stat().st_size]
    return tuple(sorted(found, key=lambda path: path.stat().st_mtime, reverse=True))
