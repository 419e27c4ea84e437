"""The planner's view of the mirror: commit records of the registry, and pruned queries where these do not decide."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from rewind.adapters import mirror, table_watch
from rewind.adapters.table_watch import Watch
from rewind.core import names, periods
from rewind.core.errors import RefusedError
from rewind.core.model import MirrorState, Topic
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.periods import Period, Strays
from rewind.core.settings import Settings
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_changes, mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.runtime.kafka.broker import Broker

SAMPLED = 1_000
"""Newest offsets of a partition whose records are looked at for fields that nobody declared."""


class Mirror:
    """What a planner reads of the mirror."""

    def __init__(self, spark: SparkSession, settings: Settings, transactional: bool) -> None:
        """Keep the session and the places; `transactional` says that the source is written by transactions."""
        self._spark = spark
        self._settings = settings
        self._transactional = transactional

    def state(self, topic: str) -> MirrorState | None:
        """Return what the mirror of the topic holds, or None when there is none.

        Raises:
            QuarantineError: Its table is another than the one that was mirrored into.
        """
        found = Broker(self._settings).topic(topic)
        if found is None:
            return None
        watch(self._settings, topic).look(self._spark)
        return read_state(self._settings, found, self._transactional)

    def within(self, topic: str, period: Period) -> Ranges:
        """Return per partition the offsets from the first to after the last mirrored record of a period.

        A partition that holds none is absent.

        Raises:
            RefusedError: The topic is not on the broker, or has no mirror.
        """
        topic_id, spans = self._spans(topic)
        path = mirror.table_path(self._settings, topic)
        return periods.within(spans, period, lambda parts: mirror.within(self._spark, path, topic_id, parts, period))

    def strays(self, topic: str, ranges: Ranges, period: Period) -> Strays:
        """Return how many mirrored records at some offsets lie outside a period.

        Raises:
            RefusedError: The topic is not on the broker, or has no mirror.
        """
        topic_id, spans = self._spans(topic)
        path = mirror.table_path(self._settings, topic)
        count = partial(mirror.count_outside, self._spark, path, topic_id, period=period)
        return periods.strays(spans, ranges, period, count)

    def _spans(self, topic: str) -> tuple[str, periods.Spans]:
        """Return the id of a topic, and what the commits of its mirror hold."""
        found = Broker(self._settings).topic(topic)
        if found is None:
            raise RefusedError("source.topic", f"{topic!r} is not on the broker", "Create it, or fix the name")
        with writing(self._settings.registry_url) as connection:
            commits, deleted = _recorded(connection, found)
        if not commits:
            raise RefusedError("source.topic", f"{topic!r} has no mirror", f"Start it with the DAG mirror_{topic}")
        return found.id, mirror_log.spans(commits, deleted)

    def undeclared(self, topic: str, declared: StructType) -> list[str]:
        """Return fields that newest records of a topic hold and a schema does not declare; of a sample, some."""
        state = self.state(topic)
        if state is None:
            return []
        path = mirror.table_path(self._settings, topic)
        newest = {p: OffsetRange(max(end - SAMPLED, 0), end) for p, end in state.end().items()}
        return mirror.undeclared(self._spark, path, state.version, newest, topic_id=state.topic_id, declared=declared)


def watch(settings: Settings, topic: str) -> Watch:
    """Return the watch of the table of a topic's mirror."""
    return table_watch.of_mirror(settings, names.mirror_owner(topic), mirror.table_path(settings, topic))


def read_state(settings: Settings, topic: Topic, transactional: bool) -> MirrorState | None:
    """Return what the mirror of a topic holds, from its commit records and from what others were seen to do to it."""
    with writing(settings.registry_url) as connection:
        commits, deleted = _recorded(connection, topic)
        changes = mirror_changes.recorded(connection, topic.name)
    found = mirror_log.state(commits, deleted, topic, transactional)
    if found is None or not changes:
        return found
    newest = max(found.version, changes[-1].version)
    void = mirror_log.void(commits, deleted, changes, newest)
    return replace(found, void=void, changed=mirror_changes.said(changes, newest)) if void else found


def _recorded(connection: Connection, topic: Topic) -> tuple[list[Commit], dict[int, list[OffsetRange]]]:
    commits = mirror_log.commits(connection, topic.name, topic.id)
    return commits, mirror_log.deletions(connection, topic.name, topic.id)
