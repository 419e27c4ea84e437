"""Maintenance of a mirror between its batches: compaction of closed days, and a vacuum that respects pins."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from rewind.adapters import delta_log
from rewind.adapters import mirror as table
from rewind.core.crash import side_effect
from rewind.core.planning.preflight import MIRROR_KEEPS_SECONDS
from rewind.core.settings import Settings
from rewind.registry import rewinds
from rewind.registry.database import writing

MOST_FILES = 64
"""A closed ingest day with more files than this is compacted."""
FILE_RECORDS = 1_000_000
EVERY = timedelta(hours=1)

log = logging.getLogger(__name__)
_last: dict[str, datetime] = {}


def between_batches(spark: SparkSession, settings: Settings, topic: str, now: datetime) -> None:
    """Compact and vacuum a mirror when an hour has passed since the last time; the writer is idle meanwhile."""
    if now - _last.setdefault(topic, now) >= EVERY:
        _last[topic] = now
        maintain(spark, settings, topic, now)


def maintain(spark: SparkSession, settings: Settings, topic: str, now: datetime) -> None:
    """Compact the closed days of a mirror and delete files that nothing needs any more."""
    path = table.table_path(settings, topic)
    for day in table.fragmented_days(spark, path, now.date().isoformat(), MOST_FILES):
        with side_effect("mirror.compact"):
            table.compact(spark, path, day, FILE_RECORDS)
        log.info("mirror of %s: compacted %s", topic, day)
    with side_effect("mirror.vacuum"):
        table.vacuum(spark, path, retain_hours(spark, settings, path, topic, now))


def configured_hours() -> float:
    """Return how long files are kept that no newer version of a mirror needs, while no plan pins an older one."""
    return float(os.environ.get("REWIND_MIRROR_RETAIN_HOURS") or MIRROR_KEEPS_SECONDS / 3600)


def retain_hours(spark: SparkSession, settings: Settings, path: str, topic: str, now: datetime) -> float:
    """Return how long removed files are kept: as configured, or until before the oldest version a plan pins."""
    configured = configured_hours()
    with writing(settings.registry_url) as connection:
        pinned = rewinds.pinned_versions(connection, topic)
    if not pinned:
        return configured
    made = datetime.fromtimestamp(delta_log.entry(spark, path, min(pinned)).timestamp / 1000, UTC)
    # One hour more: the clock of the commit and that of the vacuum may differ.
    return max(configured, (now - made) / timedelta(hours=1) + 1)
