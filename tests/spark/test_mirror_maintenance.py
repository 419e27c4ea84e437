"""A running backfill beside deletions and vacuums of the mirror that it reads (case C24)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output, mirror
from rewind.adapters.session import session
from rewind.core.errors import IntegrityError
from rewind.core.model import Generation
from rewind.core.offsets import OffsetRange
from rewind.core.settings import Settings
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.runtime import tables
from rewind.steps.feed import history
from rewind.steps.feed.chunk import Chunks
from rewind.steps.feed.history import History
from rewind.steps.generation.allocate import examined
from rewind.steps.lifecycle import backfill
from rewind.transforms.values import parsing
from tests.support import cuts, fakes
from tests.support.fakes import TOPIC, TOPIC_ID

pytestmark = pytest.mark.full

DAY = "2025-09-04"
PIPELINE = cuts.shipped("visits_converter")


@pytest.fixture(scope="module")
def template(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation with a mirror of 100 records in 4 commits of a file each."""
    home = tmp_path_factory.mktemp("mirrored") / "home"
    settings = fakes.installation(home)
    place = mirror.table_path(settings, TOPIC)
    mirror.create(session, place)
    for batch in range(4):
        append(session, settings, place, batch, 25)
    return home


@pytest.fixture
def settings(tmp_path: Path, template: Path) -> Settings:
    return fakes.copied(template, tmp_path / "home")


@pytest.fixture
def path(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of that mirror, and a broker that holds its records."""
    broker = fakes.FakeBroker()
    broker.described[TOPIC] = fakes.topic({0: 0}, {0: 100})
    monkeypatch.setattr(history, "Broker", lambda _: broker)
    return mirror.table_path(settings, TOPIC)


def append(spark: SparkSession, settings: Settings, place: str, batch: int, count: int) -> None:
    offsets = range(batch * count, (batch + 1) * count)
    rows = [(0, o, datetime(2025, 9, 4, tzinfo=UTC), 0, TOPIC, None, visit(o), []) for o in offsets]
    frame = spark.createDataFrame(rows, cuts.FIELDS).coalesce(1)
    mirror.append(frame, place, TOPIC_ID, DAY, application="m", batch=batch, metadata="")
    made = Commit(batch + 1, TOPIC_ID, {0: OffsetRange(offsets.start, offsets.stop)}, {0: count}, {}, 1)
    with writing(settings.registry_url) as connection:
        mirror_log.record(connection, TOPIC, made)


def visit(offset: int) -> bytes:
    body = {"event_id": f"v{offset}", "visit_id": offset, "event_time": "2025-09-04T07:00:00", "page": "home"}
    return json.dumps(body).encode()


class Held:
    """A lease that is never lost."""

    token = 1

    def check(self) -> None:
        """Nothing to say."""


@pytest.mark.shows("stateful", c24_rows_of_the_pinned_version_and_of_the_next="100 and 99")
def test_c24_a_privacy_deletion_while_a_backfill_reads(spark: SparkSession, settings: Settings, path: str) -> None:
    candidate = with_tables(spark, settings)
    made = Chunks(spark, settings, candidate, PIPELINE, Held())  # type: ignore[arg-type]
    chunks = [{0: OffsetRange(first, first + 25)} for first in range(0, 100, 25)]
    counts = [made.run(0, chunks[0], 4, {})]
    DeltaTable.forPath(spark, path).delete(F.col("offset") == 60)
    with writing(settings.registry_url) as connection:
        mirror_log.record_deletion(connection, TOPIC, TOPIC_ID, 0, OffsetRange(60, 61), "asked for by its visitor")
    counts += [made.run(number, chunks[number], 4, {}) for number in range(1, 4)]
    assert counts == [(25, 0)] * 4, "100 of the version that the wave is pinned to"
    rows = spark.read.format("delta").load(str(tables.path(settings, candidate.output_topic)))
    sources = [row["source"] for row in rows.select(F.col("_headers")["rewind-source"].alias("source")).collect()]
    assert sorted(sources) == sorted(f"{TOPIC_ID}:0:{n}" for n in range(100))

    # A wave after it has the one record less, and no alarm.
    whole = {0: OffsetRange(0, 100)}
    read = History(spark, settings, PIPELINE, TOPIC_ID).read
    assert read(whole, 5, {})[1:] == (99, 0)
    DeltaTable.forPath(spark, path).delete(F.col("offset") == 61)
    with pytest.raises(IntegrityError, match=r"found, recorded per partition: \{0: \(98, 99\)\}"):
        read(whole, 6, {})


def with_tables(spark: SparkSession, settings: Settings) -> Generation:
    schema = examined(spark, PIPELINE).schema
    candidate = fakes.generation(PIPELINE, 2, state="candidate")
    for name, make in (
        (candidate.output_topic, lambda p: delta_output.create(spark, p, schema)),
        (candidate.dead_letter_topic, lambda p: delta_output.create_dead(spark, p)),
    ):
        tables.mark(settings, name, make(str(tables.path(settings, name))))
    return candidate


@pytest.mark.shows("stateful", c24_chunks_begun_on_a_version_that_is_gone=0)
def test_c24_a_version_that_a_vacuum_took_stops_a_wave_before_its_first_chunk(
    spark: SparkSession, settings: Settings, path: str
) -> None:
    for batch in range(4, 10):
        append(spark, settings, path, batch, 10)
    for _ in range(4):
        mirror.compact(spark, path, DAY, 1_000)
    kept = History(spark, settings, PIPELINE, TOPIC_ID)
    kept.check(10)
    first = spark.sparkContext._jsc.sc().dagScheduler().nextJobId()
    mirror.vacuum(spark, path, 0)
    assert 0 < tasks_since(spark, first) < 500, "as many as the table needs, not ten thousand"
    kept.check(14)
    cut: list[int] = []
    checked = backfill._checked(kept, lambda _ranges, version: cut.append(version) or [])
    with pytest.raises(IntegrityError, match="mirror version 10 is no longer readable: 10 of its 10 files are gone"):
        checked({0: OffsetRange(0, 100)}, 10)
    assert cut == []


def tasks_since(spark: SparkSession, first: int) -> int:
    """Return how many tasks the session's jobs had from a job on."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    known = context.statusStore().jobsList(None)
    jobs = [known.apply(n) for n in range(known.size())]
    return sum(job.numTasks() for job in jobs if job.jobId() >= first)


@pytest.mark.shows("stateful", c24_missing_files="never ignored")
def test_c24_missing_files_are_never_ignored(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    assert session("a step", "Europe/Paris").conf.get("spark.sql.files.ignoreMissingFiles") == "false"


@pytest.mark.shows("stateful", c37_undeclared_field="lang told until declared")
@pytest.mark.shows("verdict", c37_undeclared_field="lang told until declared")
def test_c37_a_field_that_nobody_declared_is_told_until_it_is(
    spark: SparkSession, settings: Settings, path: str
) -> None:
    values = [b'{"visit_id": 1}', b'{"visit_id": "V-17"}', b'{"visit_id": 1, "lang": "fr"}', b"[1]", b"\xff", None]
    rows = [(1, n, datetime(2025, 9, 4, tzinfo=UTC), 0, TOPIC, None, value, []) for n, value in enumerate(values)]
    frame = spark.createDataFrame(rows, cuts.FIELDS)
    mirror.append(frame, path, TOPIC_ID, DAY, application="n", batch=0, metadata="")
    kept = spark.read.format("delta").load(path).where("partition = 1").orderBy("offset").collect()
    assert [row["value"] and bytes(row["value"]) for row in kept] == values, "the mirror keeps every byte"
    declared = "event_id STRING, visit_id BIGINT, event_time TIMESTAMP, page STRING"
    whole = {0: OffsetRange(0, 100), 1: OffsetRange(0, 6)}
    for schema, unknown in ((declared, ["lang"]), (f"{declared}, lang STRING", [])):
        found = mirror.undeclared(spark, path, 5, whole, topic_id=TOPIC_ID, declared=parsing.declared(schema))
        assert found == unknown
