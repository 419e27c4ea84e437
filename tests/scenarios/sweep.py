"""Every side effect of every step, found by a trace and by no list: crashes before and after each, from saved worlds.

Steps run in this process, so that the JVM stays warm: a crash is an exception that nothing catches, after which nothing
of the process's end is recorded. The streams are played: live has read all before, and their leases are held by this
process. What a real SIGKILL adds, to the JVM, to Python or to both, is drawn (`kills`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from pyspark.sql import SparkSession
from sqlalchemy import Connection, delete, select

from rewind.core import coordinates, crash
from rewind.core.model import Batch
from rewind.local import broker as local_broker
from rewind.registry import generations, leases, progress, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime import announce, collect
from rewind.runtime.drivers import bundle, submit, supervise
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.steps.generation import allocate
from rewind.steps.lifecycle import (
    abort,
    backfill,
    collect_garbage,
    cut_over,
    deploy,
    merge,
    plan,
    recheck,
    rollback,
    spin_up,
    validate,
)
from tests.scenarios import crashes, readers
from tests.scenarios.crashes import REWIND, ROLLBACK
from tests.support.ground import Ground
from tests.support.trace import NOBODYS, Crash, Snapshot, Trace
from tests.support.workshop import wait_for

VOLATILE = {
    # When it was.
    *("created_at", "started_at", "ended_at", "at", "moved_at", "grace_until", "published_at", "asset_at"),
    *("renewed_at", "launched_at"),
    # Which attempt did it, and what that one spent and met.
    *("attempt", "backfill_attempt", "token", "holder", "launched", "evidence", "cpu_seconds", "repeats"),
    # Ids that a database or Kafka gives.
    *("id", "resource_id"),
}
"""Columns in which two runs of the same differ."""
REPAIR = "rw-1123456789"
BRANCHES = ("abort", "merge")
"""Steps of a life of their own, which parts from the other where they begin."""
PLAYED = 10_000
"""Batch under which a played stream's progress is recorded."""
UNSWEPT = {"plans", "steps", "leases", "changes"}
"""Tables in which a life with a crash may hold more: attempts, and the count of all changes."""


class Sweep:
    """One pipeline, its broker, and the worlds before each of its steps."""

    def __init__(self, ground: Ground, saved: Path, spark: SparkSession) -> None:
        """Keep the parts; nothing is produced yet."""
        self.spark = spark
        self.ground = ground
        self.shop = ground.shop
        self.saved = saved
        self.ends: dict[str, Snapshot] = {}
        self.points: dict[str, list[tuple[str, int]]] = {}
        importlib.import_module("pipelines").__path__.append(str(ground.shop.settings.pipelines))

    # --- the life

    def steps(self) -> Mapping[str, Callable[[], None]]:
        """Return each step, in order, and what it takes."""
        settings, pipeline = self.shop.settings, self.shop.pipeline
        asked, back = self._asked(), {"dry_run": False, "reason": "drawn"}
        return {
            "deploy": lambda: deploy.run(settings, pipeline, "earliest"),
            "plan": lambda: plan.run(settings, REWIND, pipeline, json.dumps(asked)),
            "spin_up": lambda: spin_up.run(settings, REWIND),
            "backfill": lambda: backfill.run(settings, REWIND),
            "validate": lambda: validate.run(settings, REWIND),
            "cut_over": lambda: cut_over.run(settings, REWIND),
            "recheck": lambda: recheck.run(settings, REWIND),
            "rollback": lambda: rollback.run(settings, ROLLBACK, pipeline, back),
            "collect_garbage": lambda: collect_garbage.run(settings, dry_run=False),
            "abort": lambda: abort.run(settings, REWIND, pipeline, "drawn"),
            "merge": lambda: merge.run(settings, REPAIR),
        }

    def _asked(self) -> dict[str, Any]:
        return {"dry_run": False, "same_code": True, "consumer_groups": [f"{self.shop.pipeline}-reader"]}

    def history(self, records: int) -> None:
        """Produce, and mirror."""
        for p in range(2):
            self.shop.produce(*(crashes.visit(n) for n in range(p, records, 2)), partition=p)
        self.shop.start(self.shop.mirror)
        self.shop.caught_up(self.shop.mirror)
        self.shop.stop(self.shop.mirror)

    def between(self, step: str) -> None:
        """Do what others do after a step: streams read on, a person approves, a grace ends."""
        live, candidate = (f"{self.shop.pipeline}-g{n}" for n in (1, 2))
        if step == "deploy":
            self.shop.start(live)
            self.shop.caught_up(live)
            self.shop.stop(live)
            self._play(live)
            records = self.shop.read(f"{self.shop.pipeline}-out-g1")
            reader = readers.Reader(self.shop, f"{self.shop.pipeline}-reader")
            reader.read_on(f"{self.shop.pipeline}-out-g1", records, random.Random(1))
        elif step == "backfill":
            with self.shop.registry() as connection:
                streams.wish(connection, candidate, streams.GENERATION, streams.RUN)
            self._play(candidate)
        elif step == "validate":
            self.shop.approve(REWIND)
        elif step == "rollback":
            with self.shop.registry() as connection:
                generations.set_grace(connection, candidate, now())

    def _play(self, job: str) -> None:
        """Hold a job's lease in its driver's place, at the end of the topic."""
        with self.shop.registry() as connection:
            end = self.shop.end()
            progress.record(connection, job, 1, Batch(PLAYED, end, end, 0, now()))
            streams.wish(connection, job, streams.GENERATION, streams.RUN)
            leases.take(connection, job, leases.this_driver())

    @contextmanager
    def playing(self, trace: Trace) -> Iterator[None]:
        """Put the trace in the place of the crash points, and the end of a played stream in that of a real one's."""
        fakes: list[tuple[Any, dict[str, Any]]] = [
            (crash, {"_reach": trace.reach}),
            (recording, {"_end": _unless_crashed(recording._end)}),
            (Guard, {"__exit__": _as_the_kernel(Guard.__exit__)}),
            (supervise, {"end": self._drained}),
            (sys, {"argv": [str(bundle.build(self.shop.settings, self.shop.pipeline).folder / "main" / "step.py")]}),
        ]
        patches = [mock.patch.multiple(module, **changes) for module, changes in fakes]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()

    def _drained(self, _settings: object, owner: str, timeout: float = 0) -> None:
        self._stop_playing(owner)

    def _keep_playing(self) -> None:
        """Renew the leases of played streams, as their drivers would: else the world's clock stands still for them."""
        with self.shop.registry() as connection:
            for number in (1, 2):
                found = leases.read(connection, owner := f"{self.shop.pipeline}-g{number}")
                if found is not None and found.holder is not None:
                    leases.renew(connection, owner, found.token)

    def _stop_playing(self, owner: str) -> None:
        with self.shop.registry() as connection:
            found = leases.read(connection, owner)
            if found is not None:
                leases.give_back(connection, owner, found.token)

    def forget_played(self, connection: Connection, job: str) -> None:
        """Take back what was played of a job's progress: its driver goes on from its checkpoint."""
        played = (schema.progress.c.owner == job) & (schema.progress.c.batch == PLAYED)
        connection.execute(delete(schema.progress).where(played))

    def last_failure(self, job: str) -> str:
        """Return the last words of a driver."""
        with self.shop.registry() as connection:
            return str(streams.needed(connection, job).last_failure)

    def close(self) -> None:
        """Hold no lease any more: whoever ends the drivers of an installation would end this process."""
        for number in (1, 2):
            self._stop_playing(f"{self.shop.pipeline}-g{number}")

    def run(self, step: str, trace: Trace) -> None:
        """Run a step under a trace.

        Raises:
            Crash: It came to the point at which it was to crash.
        """
        with self.playing(trace), trace():
            self.steps()[step]()

    def clean(self, records: int) -> dict[str, Trace]:
        """Live a life without crashes, each step traced and the world before it saved; return the traces."""
        self.history(records)
        traces: dict[str, Trace] = {}
        for step in (step for step in self.steps() if step not in BRANCHES):
            self.save(step)
            traces[step] = self._traced(step)
            self.between(step)
        self.restore("validate")
        shutil.copytree(self.saved / "validate", self.saved / "abort")
        traces["abort"] = self._traced("abort")
        self.restore("plan")
        self._repaired()
        self.save("merge")
        traces["merge"] = self._traced("merge")
        return traces

    def _repaired(self) -> None:
        """Make a repair that waits for its merge."""
        half = json.dumps({self.shop.topic: {str(p): end // 2 for p, end in self.shop.end().items()}})
        settings, asked = (
            self.shop.settings,
            json.dumps({"dry_run": False, "same_code": True, "from": "earliest", "to": half}),
        )
        with self.playing(Trace()):
            plan.run(settings, REPAIR, self.shop.pipeline, asked)
            for step in (spin_up, backfill, validate):
                step.run(settings, REPAIR)
        self.shop.approve(REPAIR)

    def trace(self) -> Trace:
        """Return a trace that looks at everything."""
        return Trace(self.look, self.shop.settings.home)

    def _traced(self, step: str) -> Trace:
        trace = self.trace()
        self.run(step, trace)
        self.ends[step] = self.end()
        self.points[step] = [
            (f"{moment}:{name}", trace.points[: n + 1].count(name))
            for n, name in enumerate(trace.points)
            for moment in ("before", "after")
        ]
        return trace

    def converges(self, step: str, *crashed_at: tuple[str, int]) -> None:
        """Hold the end of a step that crashed once or more, and was run again, against that of a clean run."""
        self.restore(step)
        for at in crashed_at:
            try:
                self.run(step, Trace(crash_at=at))
            except Crash:
                continue
            # A repeat need not come by the second point: then there was nothing left to crash in.
            assert at != crashed_at[0], f"{step} did not come to {at}"
        self.run(step, Trace())
        self.compare(step, crashed_at)

    def compare(self, step: str, how: object) -> None:
        """Hold the world against what a clean run of a step ended in."""
        found, wanted = self.end(), self.ends[step]
        different = [name for name in wanted if found[name] != wanted[name]]
        assert not different, f"{step}, crashed at {how}: {_difference(wanted[different[0]], found[different[0]])}"
        assert collect.unlisted(self.shop.settings) == [], f"{step}, crashed at {how}: orphans"

    def killed(self, step: str, at: tuple[str, int], whom: str) -> None:
        """The same with a real submit, stopped at a point and killed there: its JVM, its Python, or all of it."""
        self.restore(step)
        if step in ("abort", "collect_garbage"):
            # Its driver was wished to end: nobody plays that it has in another process.
            self._stop_playing(f"{self.shop.pipeline}-g2")
        settings = self.shop.settings
        made = submit.make(
            settings,
            bundle.build(settings, self.shop.pipeline),
            step,
            self._arguments(step),
            name=step,
            environment={crash.FREEZE: at[0]},
        )
        with subprocess.Popen(
            submit.command(made),
            env=submit.environment(made),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            wait_for(f"{step} stopped at {at}", lambda: _state(process.pid) in ("T", None))
            assert _state(process.pid) == "T", f"{step} ended before {at}"
            python = [p.pid for p in psutil.Process(process.pid).children(recursive=True)]
            chosen = {"jvm": [process.pid], "python": python, "group": [process.pid, *python]}[whom]
            for pid in chosen:
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            process.wait(60)
            wait_for("the end of all its processes", lambda: not any(map(_state, [process.pid, *python])))
        self.run(step, Trace())
        self.compare(step, (at, whom))

    def _arguments(self, step: str) -> list[str]:
        rewind = ["--rewind-id", REWIND]
        back = json.dumps({"dry_run": False, "reason": "drawn"})
        return {
            "deploy": ["--pipeline", self.shop.pipeline, "--from", "earliest"],
            "plan": [*rewind, "--pipeline", self.shop.pipeline, "--request", json.dumps(self._asked())],
            "abort": [*rewind, "--pipeline", self.shop.pipeline, "--reason=drawn"],
            "rollback": ["--rollback-id", ROLLBACK, "--pipeline", self.shop.pipeline, "--request", back],
            "collect_garbage": [],
            "merge": ["--rewind-id", REPAIR],
        }.get(step, rewind)

    # --- the world

    def save(self, name: str) -> None:
        """Keep the world under a name."""
        self._broker_stopped(lambda: self._copy(self.ground.home / "kafka" / "data", self.saved / name / "kafka"))
        self._copy(self.shop.settings.data, self.saved / name / "data")
        _copy_registry(self._registry(), self.saved / name / "registry.db")

    def restore(self, name: str) -> None:
        """Bring a saved world back."""
        self._broker_stopped(lambda: self._copy(self.saved / name / "kafka", self.ground.home / "kafka" / "data"))
        self._copy(self.saved / name / "data", self.shop.settings.data)
        _copy_registry(self.saved / name / "registry.db", self._registry())
        self._keep_playing()
        self._forget_producers()

    def _forget_producers(self) -> None:
        """Close the session's cached producers: one that knows a later epoch of a topic's leader sends no more."""
        jvm = self.spark._jvm
        assert jvm is not None
        pool = getattr(jvm.org.apache.spark.sql.kafka010.producer, "InternalKafkaProducerPool$")
        getattr(pool, "MODULE$").reset()

    def _broker_stopped(self, act: Callable[[], None]) -> None:
        running = local_broker.find(self.ground.home)
        if running is not None:
            running.stop()
        act()
        self.ground.start_broker()

    def _copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)

    def _registry(self) -> Path:
        return Path(self.shop.settings.registry_url.removeprefix("sqlite:///"))

    def look(self) -> Snapshot:
        """Describe the world down to each row, file, topic and position."""
        broker = Broker(self.shop.settings)
        found: Snapshot = {}
        # Kafka writes to its own topics in its own time; what counts of them is described as positions.
        for name in (name for name in broker.topics() if not name.startswith("__")):
            topic = broker.topic(name)
            found[f"topic {name}"] = topic and (topic.id, topic.latest)
            for group in self._groups():
                found[f"position {group}/{name}"] = broker.group_offsets(group, name)
        for path in sorted(self.shop.settings.home.rglob("*")):
            if path.is_file() and path.relative_to(self.shop.settings.home).parts[0] not in NOBODYS:
                found[f"file {path}"] = (path.stat().st_size, path.stat().st_mtime_ns)
        for table, rows in self._rows().items():
            for row in rows:
                found[f"row {table} {json.dumps(row, default=str)}"] = True
        return found

    def end(self) -> Snapshot:
        """Describe what a life must end in, whatever happened on the way."""
        broker = Broker(self.shop.settings)
        topics = {name: broker.topic(name) for name in broker.topics() if name.startswith(self.shop.pipeline)}
        outputs = [name for name in topics if "-out-" in name]
        told = broker.topic(announce.TOPIC) is not None
        files = (p for p in self.shop.settings.generations.rglob("*") if p.is_file() and "checkpoint" not in p.parts)
        return {
            "topics": {name: topic and topic.config for name, topic in topics.items()},
            "outputs": {name: sorted({_sent(r) for r in self.shop.read(name)}) for name in outputs},
            "announced": sorted({_timeless(str(r.value)) for r in self.shop.read(announce.TOPIC)}) if told else [],
            "positions": {f"{g}/{name}": broker.group_offsets(g, name) for g in self._groups() for name in topics},
            "files": {str(path): path.read_bytes() for path in sorted(files)},
            "registry": {
                name: sorted({_timeless(json.dumps(_lasting(row), default=str, sort_keys=True)) for row in rows})
                for name, rows in self._rows().items()
                if name not in UNSWEPT
            },
            "steps": sorted({row["step"] for row in self._rows()["steps"] if row["state"] == "done"}),
        }

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        with writing(self.shop.settings.registry_url) as connection:
            return {
                table.name: [dict(row._mapping) for row in connection.execute(select(table))]
                for table in schema.metadata.sorted_tables
            }

    def _groups(self) -> list[str]:
        return [f"{self.shop.pipeline}-{name}" for name in ("g1", "g2", "reader")]


def _difference(wanted: object, found: object) -> str:
    """Return what of two descriptions differs."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        names = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
        return "; ".join(f"{name}: {_difference(wanted.get(name), found.get(name))}" for name in sorted(names))
    if isinstance(wanted, list) and isinstance(found, list):
        lacks = [row for row in wanted if row not in found]
        return f"lacks {str(lacks)[:1_000]}, adds {str([row for row in found if row not in wanted])[:1_000]}"
    return f"{str(found)[:500]} instead of {str(wanted)[:500]}"


def _state(pid: int) -> str | None:
    """Return the state letter of a living process, or None."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else state


def _sent(record: Any) -> tuple[str, ...]:
    """Return what a reader that deduplicates sees of a record."""
    # Who wrote it is the one thing in which two copies differ.
    headers = sorted((name, text) for name, text in record.headers.items() if name != coordinates.TOKEN)
    return str(record.partition), str(record.key), str(record.value), str(headers)


def _timeless(text: str) -> str:
    """Return a text without the instants and durations in it."""
    return re.sub(r'\d{4}-\d\d-\d\dT[\d:.]+Z|(?<="after_seconds": )[\d.]+', "some time", text)


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    # A fact of an attempt bears its number, as those of a wave bear theirs.
    numbered = {"name": re.sub(r"\.\d+$", "", row["name"])} if "name" in row else {}
    return {name: value for name, value in (row | numbered).items() if name not in VOLATILE}


def _unless_crashed(end: Callable[..., None]) -> Callable[..., None]:
    def around(settings: Any, rewind_id: str, step: str, attempt: int, state: str, evidence: Any) -> None:
        # A killed process records nothing of its end.
        if not (state == "failed" and "Crash:" in str(evidence)):
            end(settings, rewind_id, step, attempt, state, evidence)

    return around


def _as_the_kernel(leave: Callable[..., None]) -> Callable[..., None]:
    def around(guard: Any, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is not Crash:
            leave(guard, kind, *error)
            return
        # Of a killed process the kernel lets the lock go; its lease stays, held by who is dead.
        guard._stop.set()
        os.close(guard._lock)
        with writing(guard._settings.registry_url) as connection:
            dead = replace(leases.this_driver(), processes=(leases.Process(os.getpid(), 0),))
            leases.note(connection, guard._owner, guard.token, dead)

    return around


def _copy_registry(source: Path, target: Path) -> None:
    """Copy a registry in one transaction, into a file that others hold open."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(source) as there, sqlite3.connect(target) as here:
        there.backup(here)


def _beside_a_transaction(act: Callable[[Sweep], None]) -> Callable[[Sweep], Any]:
    """Return a plant: something is done after a generation is recorded, outside any point."""

    def plant(sweep: Sweep) -> Any:
        record = allocate.record

        def around(*arguments: Any, **named: Any) -> Any:
            made = record(*arguments, **named)
            act(sweep)
            return made

        return mock.patch.object(allocate, "record", around)

    return plant


def _write_file(sweep: Sweep) -> None:
    (sweep.shop.settings.data / "planted").write_text("")


def _make_topic(sweep: Sweep) -> None:
    Broker(sweep.shop.settings).create_control_topic("planted")


def _move_position(sweep: Sweep) -> None:
    Broker(sweep.shop.settings).commit(f"{sweep.shop.pipeline}-reader", sweep.shop.topic, {0: 1})


def _wish(sweep: Sweep) -> None:
    sweep.shop.wish(f"{sweep.shop.pipeline}-g1", streams.DRAIN)


PLANTS = {
    "file": _beside_a_transaction(_write_file),
    "topic": _beside_a_transaction(_make_topic),
    "position": _beside_a_transaction(_move_position),
    "row streams": _beside_a_transaction(_wish),
}
"""Unnamed mutations, a kind each, that a trace must find in `spin_up`."""
