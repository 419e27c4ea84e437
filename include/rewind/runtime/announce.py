"""Tell the world of a switch: one record an epoch on a compacted control topic.

What is announced is decided in the transaction that moves the pointer and published after it, so that a
crash between the two loses nothing and a repeat tells the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC
from typing import Any, Protocol

from sqlalchemy import Connection, func, insert, select, update

from rewind.core import comparing, lifecycle, times
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Vector
from rewind.core.planning import shared_output
from rewind.core.settings import Settings
from rewind.registry import generations, progress, schema
from rewind.registry.database import now, reading, writing
from rewind.registry.verdicts import Verdict
from rewind.runtime.kafka.broker import Broker

TOPIC = "rewind-control"

_table = schema.announcements


class Announcer(Protocol):
    """What publishing needs of the broker."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic, or None when there is none of that name."""

    def create_control_topic(self, name: str) -> None:
        """Create a compacted topic of one partition; harmless when it exists."""

    def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Send one record and wait until it is stored."""


def prepare(
    connection: Connection,
    pipeline: str,
    epoch: int,
    old_job: str | None,
    new_job: str,
    verdict: Verdict | None = None,
) -> None:
    """Store what is to be announced of a switch; harmless when it is stored already.

    Args:
        connection: The transaction that moves the pointer.
        pipeline: The pipeline.
        epoch: The pointer's new epoch.
        old_job: The job that was live; None for a first generation.
        new_job: The job that is live now.
        verdict: What the switch rests on; readers are told where it compared nothing.
    """
    if body(connection, pipeline, epoch) is not None:
        return
    made = {
        "pipeline": pipeline,
        "epoch": epoch,
        "job_id": new_job,
        "previous_job_id": old_job,
        "announced_at": times.format_instant(now().replace(tzinfo=UTC)),
        "jobs": {job: _job(connection, generations.read(connection, job)) for job in (old_job, new_job) if job},
    }
    if verdict is not None and verdict.verdict == lifecycle.UNCOMPARED:
        made[comparing.FIELD] = verdict.reason
    connection.execute(insert(_table).values(pipeline=pipeline, epoch=epoch, body=made))


def body(connection: Connection, pipeline: str, epoch: int) -> dict[str, Any] | None:
    """Return what is announced of an epoch, or None when nothing was prepared."""
    found: dict[str, Any] | None = connection.execute(
        select(_table.c.body).where(_one(pipeline, epoch))
    ).scalar_one_or_none()
    return found


def publish(settings: Settings, pipeline: str, epoch: int, broker: Announcer | None = None) -> None:
    """Put the announcement of an epoch on the control topic; harmless when it is there already.

    An epoch that a later one has overtaken is not sent: compaction keeps the last record of a key, and that
    must be the newest epoch's.

    Raises:
        RefusedError: Nothing was prepared for the epoch.
        RetryError: The broker or the registry did not answer.
    """
    broker = broker or Broker(settings)
    with reading(settings.registry_url) as connection:
        announced, overtaken, published = _state(connection, pipeline, epoch)
    if published:
        return
    if not overtaken:
        announced = _with_output_ends(settings, announced, broker)
        with side_effect("announce.publish"):
            broker.create_control_topic(TOPIC)
            broker.send(TOPIC, pipeline.encode(), json.dumps(announced, sort_keys=True).encode())
    with side_effect("announce.record"), writing(settings.registry_url) as connection:
        connection.execute(update(_table).where(_one(pipeline, epoch)).values(published_at=now()))


def _state(connection: Connection, pipeline: str, epoch: int) -> tuple[dict[str, Any], bool, bool]:
    row = connection.execute(select(_table).where(_one(pipeline, epoch))).one_or_none()
    if row is None:
        raise RefusedError("epoch", f"nothing is announced of {pipeline} at epoch {epoch}", "Run cut_over again")
    published = (_table.c.pipeline == pipeline) & _table.c.published_at.is_not(None)
    newest = connection.execute(select(func.max(_table.c.epoch)).where(published)).scalar()
    return dict(row.body), newest is not None and newest > epoch, row.published_at is not None


def _job(connection: Connection, job: Generation) -> dict[str, Any]:
    topic = job.source_topic
    return {
        "source_topic": topic,
        "source_topic_id": job.topic_id,
        "source_position": _offsets(topic, progress.position(connection, job.job_id, job.handoff)),
        "output_topic": shared_output.read_from(job.frozen["config"], job.output_topic),
        "dead_letter_topic": job.dead_letter_topic,
    }


def _with_output_ends(settings: Settings, announced: Mapping[str, Any], broker: Announcer) -> dict[str, Any]:
    """Return the announcement with the end of each output, read once: a repeat must tell the same."""
    if all("output_position" in job for job in announced["jobs"].values()):
        return dict(announced)
    jobs = {name: {**job, "output_position": _ends(job, broker)} for name, job in announced["jobs"].items()}
    complete = {**announced, "jobs": jobs}
    with side_effect("announce.complete"), writing(settings.registry_url) as connection:
        one = _one(announced["pipeline"], announced["epoch"])
        connection.execute(update(_table).where(one).values(body=complete))
    return complete


def _ends(job: Mapping[str, Any], broker: Announcer) -> dict[str, dict[str, int]]:
    found = [broker.topic(job[name]) for name in ("output_topic", "dead_letter_topic")]
    return {name: ends for topic in found if topic for name, ends in _offsets(topic.name, topic.latest).items()}


def _offsets(topic: str, vector: Vector) -> dict[str, dict[str, int]]:
    return {topic: {str(p): vector[p] for p in sorted(vector)}}


def _one(pipeline: str, epoch: int) -> Any:
    return (_table.c.pipeline == pipeline) & (_table.c.epoch == epoch)
