"""Public faults that need a broker and real drivers: cases C04, C07, C15, C16, C18 (the job's side) and C22."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlalchemy import delete, insert

from rewind.adapters import mirror
from rewind.adapters.mirror_reader import read_state
from rewind.core.offsets import OffsetRange
from rewind.registry import database, generations, schema
from rewind.runtime.drivers import submit, supervise
from rewind.runtime.kafka.broker import Broker
from tests.support.workshop import Ended, Workshop, declare, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def visit(n: int) -> bytes:
    return json.dumps(
        {"event_id": f"click-{n}", "visit_id": n, "event_time": "2025-09-04T07:00:00", "page": "home"}
    ).encode()


def visits(count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    return [(str(n).encode(), visit(n)) for n in range(first, first + count)]


def drive(shop: Workshop, job_id: str) -> Ended:
    """Run a stream's driver in the foreground, for the drivers that must refuse to start."""
    made = supervise.submit_of(shop.settings, job_id, "generation", 99)
    done = subprocess.run(
        submit.command(made), env=submit.environment(made), capture_output=True, text=True, timeout=120, check=False
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def test_c04_a_recreated_topic_stops_stream_and_plan(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("recreated", 1)
    shop.produce(*visits(500))
    live = shop.deploy()
    shop.start(live)
    shop.start(shop.mirror)
    shop.caught_up(live)
    shop.caught_up(shop.mirror)
    shop.stop(live)
    shop.stop(shop.mirror)
    old = Broker(shop.settings).topic(shop.topic)
    assert old is not None
    shop.delete_topic(shop.topic)
    shop.create_topic(shop.topic, 1)
    for produced, latest in ((300, 300), (400, 700)):
        shop.produce(*visits(produced))
        ended = drive(shop, live)
        assert ended.code == 64
        assert f"was recreated (id {old.id}" in ended.output
        assert f"partition 0: stored 500, earliest 0, latest {latest}" in ended.output
    planned = shop.plan("rw-recreated", same_code=True)
    assert planned.code == 64
    assert "partition 0: stored 500, earliest 0, latest 700" in planned.output

    # The new topic's records are mirrored apart from the old one's.
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    new = Broker(shop.settings).topic(shop.topic)
    assert new is not None
    states = [read_state(shop.settings, topic, transactional=False) for topic in (old, new)]
    assert [state.records if state else None for state in states] == [500, 700]


@pytest.mark.full
def test_c07_holes_of_transactions_are_no_loss_and_others_are(workshop: Callable[..., Workshop]) -> None:
    marked = workshop("marked", 1, topic="holes", source=source("holes", transactional=True))
    declare(marked.settings.pipelines, "plain", "holes", output="plain-out")
    plain = copy.copy(marked)
    plain.pipeline = "plain"
    write_with_holes(marked)
    assert marked.end() == {0: 10}
    for shop in (marked, plain):
        shop.deploy()
    marked.start(marked.mirror)
    marked.caught_up(marked.mirror)

    plan = marked.planned("rw-marked", same_code=True)
    assert (plan.records, plan.end, plan.accepted_gaps) == (6, {0: 10}, {})
    marked.step("spin_up", "rw-marked")
    backfilled = marked.step("backfill", "rw-marked")
    assert "chunk 0 done: 6 records, 0 repeats" in backfilled.output
    sources = [r.headers["rewind-source"].split(":")[2] for r in marked.read(plan.output_topic)]
    assert sources == ["0", "1", "2", "4", "5", "8"]
    with marked.registry() as connection:
        assert generations.read(connection, plan.job_id).handoff == {0: 10}

    refused = plain.plan("rw-plain", same_code=True)
    assert refused.code == 64
    assert (
        "accept_gaps: the mirror lacks partition 0 offset 3; partition 0 offset 6-7; partition 0 offset 9"
        in refused.output
    )
    gaps = json.dumps({plain.topic: {"0": [[3, 4], [6, 8], [9, 10]]}})
    accepted = plain.planned("rw-plain-2", same_code=True, accept_gaps=gaps)
    assert accepted.accepted_gaps == {0: (OffsetRange(3, 4), OffsetRange(6, 8), OffsetRange(9, 10))}
    plain.step("spin_up", "rw-plain-2")
    assert "chunk 0 done: 6 records, 0 repeats" in plain.step("backfill", "rw-plain-2").output


def source(topic: str, **more: object) -> dict[str, object]:
    schema = "event_id STRING, visit_id BIGINT, event_time TIMESTAMP, page STRING"
    return {"topic": topic, "schema": schema, "required": ["event_id"], **more}


def write_with_holes(shop: Workshop) -> None:
    """Write records at offsets 0, 1, 2, 4, 5 and 8, with markers or aborted records at 3, 6, 7 and 9."""
    producer = KafkaProducer(bootstrap_servers=shop.settings.bootstrap, transactional_id=f"holes-{shop.topic}")
    producer.init_transactions()
    for count, ending in (
        (3, producer.commit_transaction),
        (0, None),
        (1, producer.abort_transaction),
        (1, producer.commit_transaction),
    ):
        if ending is None:
            shop.produce(*visits(2))
            continue
        producer.begin_transaction()
        for n in range(count):
            producer.send(shop.topic, key=b"k", value=visit(n), partition=0)
        producer.flush()
        ending()
    producer.close()


def test_c15_leftovers_stop_a_new_generation(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("leftover", 1)
    shop.produce(*visits(9))
    live = shop.deploy()
    shop.start(live)
    shop.caught_up(live)
    shop.stop(live)
    shop.planned("rw-left", same_code=True, **{"from": "live"})
    folder = supervise.generation_folder(shop.settings, "leftover-g2")
    old = supervise.checkpoint_folder(shop.settings, live)
    shutil.copytree(old, folder / "checkpoint")
    refused = shop.submit("spin_up", "--rewind-id", "rw-left")
    assert refused.code == 64
    assert f"{folder} exists already" in refused.output
    assert "leftover-out-g2" not in Broker(shop.settings).topics()

    shutil.rmtree(folder)
    shop.step("spin_up", "rw-left")
    shop.step("backfill", "rw-left")
    # Another query's checkpoint in its own folder: resumed elsewhere, the stream would do almost nothing.
    shutil.copytree(old, folder / "checkpoint")
    ended = drive(shop, "leftover-g2")
    assert ended.code == 70
    assert "is not empty (last batch 0): began, asked per partition: {0: (0, 9)}" in ended.output


@pytest.mark.full
def test_c16_a_partition_that_is_added_loses_nothing(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("added", 2)
    shop.produce(*visits(10))
    live = shop.deploy()
    shop.start(live)
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    plan = shop.planned("rw-added", same_code=True)
    assert plan.end == {0: 10, 1: 0}
    shop.step("spin_up", "rw-added")
    shop.step("backfill", "rw-added")
    shop.add_partitions(3)
    shop.produce(*visits(5, first=100), partition=2)
    candidate = plan.job_id
    shop.start(candidate)
    holder = shop.holder(candidate)
    assert holder is not None
    os.killpg(holder.group, signal.SIGKILL)
    wait_for("the driver's end", lambda: shop.holder(candidate) is None)
    shop.start(candidate)
    shop.caught_up(candidate)
    found = {r.headers["rewind-source"].split(":", 1)[1] for r in shop.read(plan.output_topic)}
    assert found == {f"0:{n}" for n in range(10)} | {f"2:{n}" for n in range(5)}
    logs = "".join(p.read_text() for p in supervise.log_folder(shop.settings, candidate).glob("driver.*.out"))
    assert f"partition 2 of {shop.topic} was added: it starts at 0" in logs


@pytest.mark.full
def test_c22_a_repeat_is_processed_once_and_a_conflict_stops_the_backfill(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("repeats", 2)
    shop.produce(*visits(8))
    shop.produce(*visits(8), partition=1)
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)
    # A plan would refuse what comes after it.
    plan = shop.planned("rw-repeats", same_code=True)
    shop.step("spin_up", "rw-repeats")
    path = mirror.table_path(shop.settings, shop.topic)
    rows = spark.read.format("delta").load(path)
    same, other = rows.where("partition = 0 and offset = 5"), rows.where("partition = 0 and offset = 6")
    other = other.withColumn("value", F.lit(b"other")).withColumn("ingest_date", F.lit("2026-01-02").cast("date"))
    same.unionByName(other).write.format("delta").mode("append").save(path)

    # The registry knows the mirror's commits up to the conflict's: the wave must read the newest version.
    pin(shop, "rw-repeats", spark)
    stopped = shop.submit("backfill", "--rewind-id", "rw-repeats")
    assert stopped.code == 70
    assert "different bytes for one offset: partition 0 offset 6" in stopped.output
    assert "datetime.date(2026, 1, 2)" in stopped.output
    assert shop.read(plan.output_topic) == []

    spark.sql(f"delete from delta.`{path}` where ingest_date = '2026-01-02'")
    pin(shop, "rw-repeats", spark)
    assert "16 records, 1 repeats" in shop.step("backfill", "rw-repeats").output
    sources = [r.headers["rewind-source"].split(":", 1)[1] for r in shop.read(plan.output_topic)]
    assert sorted(sources) == sorted(f"{p}:{n}" for p in range(2) for n in range(8))


def pin(shop: Workshop, rewind_id: str, spark: SparkSession) -> None:
    """Make the first wave of a rewind read the newest version of the mirror."""
    path = mirror.table_path(shop.settings, shop.topic)
    newest = spark.sql(f"describe history delta.`{path}`").agg(F.max("version")).first()
    assert newest is not None
    with shop.registry() as connection:
        connection.execute(delete(schema.facts).where(schema.facts.c.name == "wave.0"))
        value = {"version": newest[0], "end": {"0": 8, "1": 8}}
        connection.execute(
            insert(schema.facts).values(rewind_id=rewind_id, name="wave.0", value=value, at=database.now())
        )
