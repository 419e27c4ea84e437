"""Send the approved rows of a repair from its staging to live's output, or leave them beside it."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output, kafka, table_watch
from rewind.adapters.delta_output import Write
from rewind.adapters.session import session
from rewind.core import coordinates, lifecycle
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.model import Generation
from rewind.core.pipeline import DELTA
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import generations, rewinds, verdicts
from rewind.registry.database import reading, writing
from rewind.runtime import tables
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.transforms.records import encoding

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str) -> None:
    """Merge an approved repair; rows sent twice carry the same headers, by which readers deduplicate.

    Raises:
        RefusedError: No verdict to act on, or not approved.
        WorldMovedError: Live is another generation now.
    """
    recording.recorded(settings, rewind_id, "merge", lambda _: _merge(settings, rewind_id))


def _merge(settings: Settings, rewind_id: str) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        found = rewinds.read(connection, rewind_id)
        if found.state == lifecycle.FINISHED:
            return {"rows": 0, "already": True}
        _, plan = rewinds.read_active(connection, rewind_id)
        verdicts.approved(connection, rewind_id)
        live = generations.live(connection, plan.request.pipeline)
        repair = generations.read(connection, plan.job_id)
    if live is None or live[0].job_id != plan.live_job_id:
        raise WorldMovedError("pipeline", f"{plan.live_job_id} is no longer live", "Abort, and make a new plan")
    rows = _send(settings, plan, live[0], repair) if plan.request.repair_into == "live" else 0
    with side_effect("repair.finish"), writing(settings.registry_url) as connection:
        if plan.request.repair_into == "live":
            generations.move(connection, repair.job_id, lifecycle.MERGED)
        rewinds.close(connection, rewind_id, lifecycle.FINISHED)
    log.info("%s: %d rows sent to %s", repair.job_id, rows, live[0].output_topic)
    return {"rows": rows, "into": live[0].output_topic if rows else repair.output_topic}


def _send(settings: Settings, plan: Plan, live: Generation, repair: Generation) -> int:
    spark = session(f"merge {repair.job_id}", plan.config["session_time_zone"])
    with Guard(settings, repair.job_id, "merge") as guard:
        if live.declared.output_format == DELTA:
            guard.check()
            return _copy(spark, settings, repair, live)
        output = Broker(settings).topic(live.output_topic)
        if output is None:
            raise RefusedError("output.topic", f"{live.output_topic} is gone", "Restore it")
        rows = _staged(spark, settings, repair, live)
        guard.check()
        with side_effect("repair.send"):
            kafka.write(rows.select(*encoding.SINK_COLUMNS), settings, output.config)
        return rows.count()


def _copy(spark: SparkSession, settings: Settings, repair: Generation, live: Generation) -> int:
    """Append the rows of the staging tables to live's."""
    pairs = ((repair.output_topic, live.output_topic), (repair.dead_letter_topic, live.dead_letter_topic))
    for staged, target in pairs:
        table_watch.of_output(settings, repair, staged).check(spark)
        table_watch.of_output(settings, live, target).check(spark)
    counts = []
    for staged, target in pairs:
        source, into = (str(tables.path(settings, name)) for name in (staged, target))
        # They stand beside live's newest rows: a number above all others would hide what live writes next.
        newest = max(delta_output.as_topic(spark, into, target, "").latest[0] - 1, 0)
        with side_effect("repair.send"):
            counts.append(delta_output.copy(spark, source, into, Write(f"{repair.job_id}-merge", 0, newest, {})))
    return sum(counts)


def _staged(spark: SparkSession, settings: Settings, repair: Generation, live: Generation) -> DataFrame:
    """Return the rows of the staging topics, addressed to live's, in the order of their sources."""
    targets = ((repair.output_topic, live.output_topic), (repair.dead_letter_topic, live.dead_letter_topic))
    frames = [_topic(spark, settings, staged).withColumn("topic", F.lit(target)) for staged, target in targets]
    if live.declared.stateful:
        # Versions of keys, of which a repeat is the same in all.
        return frames[0].unionByName(frames[1])
    source = F.filter("headers", lambda header: header["key"] == coordinates.SOURCE)[0]["value"].cast("string")
    rows = frames[0].unionByName(frames[1]).withColumn("source", source).dropDuplicates(["source"])
    parts = F.split("source", ":")
    placed = rows.withColumns({"p": parts[1].cast("int"), "o": parts[2].cast("long")})
    return encoding.in_source_order(placed, "p", "o")


def _topic(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    found = Broker(settings).topic(name)
    if found is None:
        raise RefusedError("output.topic", f"{name} is gone", "Abort, and repair again")
    return kafka.read_whole(spark, settings, found, "read_committed").select("key", "value", "headers")
