"""A registry as a large installation has it after a year, seeded without any stream or broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert

from rewind.core import lifecycle
from rewind.core.model import Topic
from rewind.core.planning.plan import sealed
from rewind.core.planning.stages import REWIND, SHAPES
from rewind.core.settings import Settings
from rewind.registry import database, schema
from rewind.registry.database import now
from tests.support import page_states

COMMITS, CHUNKS, VERDICT_ROWS, REWINDS, NIGHTS = 200, 4, 5, 6, 60


@dataclass(frozen=True)
class Load:
    """How much there is."""

    pipelines: int = 50
    generations: int = 1_000
    batches: int = 10_000

    @property
    def each(self) -> int:
        return self.generations // self.pipelines


def seed(settings: Settings, load: Load) -> None:
    """Fill a new registry, and declare its pipelines."""
    database.upgrade(settings.registry_url)
    at = now()
    rows: dict[Any, list[dict[str, Any]]] = {}
    for number in range(load.pipelines):
        page_states.declare(settings, f"load_{number}")
        for table, row in _of_pipeline(f"load_{number}", load, at):
            rows.setdefault(table, []).append(row)
    with database.writing(settings.registry_url) as connection:
        for table in sorted(rows, key=schema.metadata.sorted_tables.index):
            connection.execute(insert(table), rows[table])


def advance(connection: Connection, load: Load, batch: int) -> None:
    """Commit one batch of each live stream and mirror, as a busy installation does each second."""
    names, at = [f"load_{n}" for n in range(load.pipelines)], now()
    connection.execute(insert(schema.progress), [_batch(f"{name}-g{load.each}", batch, at) for name in names])
    connection.execute(insert(schema.mirror_commits), [_commit(name, batch, at) for name in names])


def _of_pipeline(name: str, load: Load, at: datetime) -> Iterator[tuple[Any, dict[str, Any]]]:
    live = load.each
    for number in range(1, live + 1):
        yield from _generation(name, number, live, at)
    yield schema.pointers, {"pipeline": name, "job_id": f"{name}-g{live}", "epoch": live, "moved_at": at}
    for number in range(live - REWINDS + 1, live + 1):
        yield from _rewind(name, number, at - timedelta(days=live - number))
    for number in range(load.batches // load.pipelines):
        age = timedelta(seconds=load.batches // load.pipelines - number)
        yield schema.progress, _batch(f"{name}-g{live}", number, at - age)
    for number in range(1, NIGHTS + 1):
        yield schema.nights, _night(name, number, f"{name}-g{live}", at - timedelta(days=NIGHTS - number))
    for version in range(COMMITS):
        yield schema.mirror_commits, _commit(name, version, at - timedelta(seconds=COMMITS - version))
    for owner, kind in ((f"{name}-g{live}", "generation"), (f"mirror-{name}", "mirror")):
        stream = {"owner": owner, "kind": kind, "wish": "run", "starts": 1, "failures": 0}
        yield schema.streams, stream
        yield schema.leases, {"owner": owner, "token": 1, "holder": None, "renewed_at": at}


def _generation(name: str, number: int, live: int, at: datetime) -> Iterator[tuple[Any, dict[str, Any]]]:
    job, age = f"{name}-g{number}", timedelta(days=live - number)
    states = {live: lifecycle.LIVE, live - 1: lifecycle.STANDBY}
    made = {"job_id": job, "pipeline": name, "kind": "g", "number": number, "topic_id": "id-1", "bundle": f"b{number}"}
    made |= {"state": states.get(number, lifecycle.COLLECTED), "rewind_id": f"rw-{name}-{number}"}
    made |= {"frozen": {"config": {**page_states.CONFIG, "source_topic": name}, "versions": {"pyspark": "4.2.0"}}}
    made |= {"start": {"0": 0, "1": 0}, "handoff": {"0": 5, "1": 7}, "created_at": at - age, "grace_until": None}
    yield schema.generations, {**made, "output_topic": f"{job}-out", "dead_letter_topic": f"{job}-dead"}
    gone = number < live - 1
    for kind in ("topic", "group", "folder"):
        thing = {"job_id": job, "kind": kind, "name": f"{job}-{kind}", "resource_id": None}
        yield schema.manifest, {**thing, "state": "deleted" if gone else "made"}
        if gone:
            yield schema.deletions, {**thing, "result": "deleted", "detail": "", "at": at - age}


def _rewind(name: str, number: int, at: datetime) -> Iterator[tuple[Any, dict[str, Any]]]:
    rewind_id, job = f"rw-{name}-{number}", f"{name}-g{number}"
    asked = page_states.plan(reason=rewind_id)
    made = sealed(replace(asked, request=replace(asked.request, pipeline=name), job_id=job, live_job_id=f"{name}-g1"))
    yield schema.plans, {"id": made.id, "pipeline": name, "body": made.to_json(), "created_at": at}
    opened = {"id": rewind_id, "pipeline": name, "plan_id": made.id, "job_id": job, "reason": "as asked"}
    ended = {"state": lifecycle.FINISHED, "created_at": at, "ended_at": at + timedelta(hours=1)}
    yield schema.rewinds, {**opened, **ended}
    for step in SHAPES[REWIND].steps:
        attempt = {"rewind_id": rewind_id, "step": step, "attempt": 1, "state": "done", "cpu_seconds": 9.5}
        yield schema.steps, {**attempt, "started_at": at, "ended_at": at, "evidence": {"rows": 1_000, "of": job}}
        yield schema.leases, {"owner": f"{rewind_id}.{step}", "token": 1, "holder": None, "renewed_at": at}
    for chunk in range(CHUNKS):
        cut = {"rewind_id": rewind_id, "number": chunk, "wave": 0, "ranges": {"0": [chunk, chunk + 1]}}
        yield schema.chunks, {**cut, "state": "done", "rows": 1, "repeats": 0, "started_at": at, "ended_at": at}
    judged = {"rewind_id": rewind_id, "attempt": 1, "backfill_attempt": 1, "verdict": "pass", "at": at, "reason": ""}
    found = {"counts": {"rows": 10**6, "equal": 10**6}, "sample": [{"key": n} for n in range(VERDICT_ROWS)]}
    yield schema.verdicts, {**judged, **found, "floor": {"0": 0}, "ceiling": {"0": 10**6}}
    answer = {"rewind_id": rewind_id, "attempt": 1, "answer": "approve", "person": "ada", "reason": "", "at": at}
    yield schema.approvals, answer


def _night(name: str, number: int, job: str, at: datetime) -> dict[str, Any]:
    made = {"replay_id": f"{name}-n{number}", "pipeline": name, "number": number, "label": at.date().isoformat()}
    made |= {"start_at": at - timedelta(days=1), "end_at": at, "sample": {}, "sample_hash": "all", "job_id": job}
    made |= {"ranges": {"0": [number * 100, number * 100 + 100]}, "state": "consistent", "attempt": 1, "run_id": "r"}
    made |= {"reason": "", "counts": {"rows": 100, "equal": 100}, "fields": {}, "frontier": None, "scratch": 0}
    return {**made, "began_at": at, "ended_at": at}


def _batch(owner: str, number: int, at: datetime) -> dict[str, Any]:
    ends = {"start": {"0": 50 * number, "1": 50 * number}, "end": {"0": 50 * number + 50, "1": 50 * number + 50}}
    marks = {"late_watermark": 10**12 + 1_000 * number, "closing_watermark": 10**12 + 1_000 * number}
    return {"owner": owner, "batch": number, "token": 1, **ends, "rows": 100, **marks, "at": at}


def _commit(topic: str, version: int, at: datetime) -> dict[str, Any]:
    ranges = {"0": [100 * version, 100 * version + 100], "1": [100 * version, 100 * version + 100]}
    made = {"topic": topic, "topic_id": "id-1", "version": version, "ranges": ranges, "at": at}
    return {**made, "counts": {"0": 100, "1": 100}, "holes": {}, "bytes": 9_000}


class Ends:
    """A broker that knows every topic."""

    def topic(self, name: str) -> Topic | None:
        return Topic(name, "id-1", {0: 0, 1: 0}, {0: 20_000, 1: 20_000})
