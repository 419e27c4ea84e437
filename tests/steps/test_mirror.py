"""What a mirror is read for: deletions as legal holes, versions that plans pin, a paced backfill, adopted positions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import mirror
from rewind.adapters.mirror_reader import read_state
from rewind.core.offsets import OffsetRange, ends
from rewind.registry import chunk_log, rewinds
from rewind.registry.mirrors import mirror_log
from rewind.runtime.drivers import bundle, submit, supervise
from rewind.runtime.kafka.broker import Broker
from rewind.steps.mirroring import maintenance
from tests.scenarios.mirroring import produce_all_kinds
from tests.support.workshop import Workshop, declare, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_recorded_deletion_is_a_legal_hole(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("deleted", 1)
    shop.produce(*((b"k", b"{}") for _ in range(9)))
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)
    topic = Broker(shop.settings).topic(shop.topic)
    assert topic is not None
    path = mirror.table_path(shop.settings, shop.topic)
    with shop.registry() as connection:
        mirror_log.record_deletion(connection, shop.topic, topic.id, 0, OffsetRange(3, 5), "a visitor asked for it")
    spark.sql(f"delete from delta.`{path}` where offset in (3, 4)")
    state = read_state(shop.settings, topic, transactional=False)
    assert state is not None
    assert (state.holes, state.legal_holes) == ({0: [OffsetRange(3, 5)]}, {0: [OffsetRange(3, 5)]})
    plan = shop.planned("rw-deleted", same_code=True)
    assert plan.records == 7


@pytest.mark.full
def test_vacuum_keeps_what_a_plan_pins(
    workshop: Callable[..., Workshop], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop("pinned", 1)
    shop.produce(*((b"k", b"{}") for _ in range(6)))
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)
    path = mirror.table_path(shop.settings, shop.topic)
    plan = shop.planned("rw-pinned", same_code=True)
    spark.sql(f"delete from delta.`{path}` where offset = 0")
    monkeypatch.setenv("REWIND_MIRROR_RETAIN_HOURS", "0")
    now = datetime.now(UTC)
    pinned_at = maintenance.retain_hours(spark, shop.settings, path, shop.topic, now)
    assert 1.0 <= pinned_at < 2.0
    maintenance.maintain(spark, shop.settings, shop.topic, now)
    assert mirror.read(spark, path, plan.mirror_version).count() == 6


@pytest.mark.full
@pytest.mark.shows("lifecycle", paused_and_throttled_backfill="3 chunks of 300 rows")
def test_a_paused_and_throttled_backfill_resumes(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("paced", 3, backfill={"chunk_records": 300})
    produce_all_kinds(shop, 900)
    shop.deploy()
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    shop.planned("rw-paced", same_code=True)
    shop.step("spin_up", "rw-paced")
    with shop.registry() as connection:
        rewinds.set_controls(connection, "rw-paced", paused=True, records_per_second=None)
    running = submit.make(
        shop.settings,
        bundle.build(shop.settings, shop.pipeline),
        "backfill",
        ["--rewind-id", "rw-paced"],
        name="backfill",
    )
    process = subprocess.Popen(
        submit.command(running),
        env=submit.environment(running),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    wait_for("the pause", lambda: "paused" in process.stdout.readline(), 120)
    with shop.registry() as connection:
        assert [c.state for c in chunk_log.read(connection, "rw-paced")] == ["planned"] * 3
        rewinds.set_controls(connection, "rw-paced", paused=False, records_per_second=300)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    with shop.registry() as connection:
        done = chunk_log.read(connection, "rw-paced")
    assert [(c.state, c.rows) for c in done] == [("done", 300)] * 3
    assert ends(done[-1].ranges) == {0: 300, 1: 300, 2: 300}


@pytest.mark.shows("lifecycle", adopted_positions="exactly those of a group and of a checkpoint")
def test_deploy_adopts_exactly_the_positions_of_a_group_or_a_checkpoint(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("first", 2, topic="adopted")
    shop.produce(*((b"k", b"{}") for _ in range(9)))
    shop.produce(*((b"k", b"{}") for _ in range(5)), partition=1)
    Broker(shop.settings).commit("old-group", "adopted", {0: 4, 1: 2})
    live = shop.deploy("group:old-group")
    assert shop.position(live) == {0: 4, 1: 2}
    shop.start(live)
    shop.caught_up(live)
    shop.stop(live)
    sources = [r.headers["rewind-source"].split(":", 1)[1] for r in shop.read("first-out-g1-dead")]
    assert sorted(sources) == [f"0:{n}" for n in range(4, 9)] + [f"1:{n}" for n in range(2, 5)]
    assert Broker(shop.settings).group_offsets(live, "adopted") == {0: 9, 1: 5}

    other = Workshop(shop.settings, "second", 1, topic="of-no-matter", output="second-out")
    declare(shop.settings.pipelines, "third", "adopted", output="third-out")
    other.pipeline = "third"
    checkpoint = supervise.checkpoint_folder(shop.settings, live)
    adopted = other.deploy(f"checkpoint:{checkpoint}")
    assert other.position(adopted) == {0: 9, 1: 5}
    other.pipeline = "second"
    refused = other.submit("deploy", "--pipeline", "second", "--from", "group:nobody")
    assert refused.code == 64
    assert "from: group 'nobody' has no committed position on 'of-no-matter'" in refused.output
