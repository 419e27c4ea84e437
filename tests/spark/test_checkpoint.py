"""What a checkpoint says, whole and damaged; and what a driver makes of it at its start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from rewind.adapters import checkpoint
from rewind.core.errors import IntegrityError, RetryError, RewindError
from rewind.core.model import Batch
from rewind.registry import leases, progress
from rewind.registry.database import now, writing
from rewind.steps.streaming import driver as module
from rewind.steps.streaming.driver import Driver, Source
from tests.support.fakes import installation

OWNER = "visits_converter-g1"
AT = '{"batchWatermarkMs":1756968660000,"batchTimestampMs":1756968700000,"conf":{}}'


TORN = [
    "",
    "v1\n{}\n",
    f'v1\n{AT}\n{{"visits":{{"0":5',
    f'v1\n{AT}\n{{"visits":[1]}}',
    'v1\n{}\n{"visits":{"0":5}}',
]


@pytest.mark.parametrize("text", TORN)
def test_offsets_that_are_torn_are_refused_with_the_cure(spark, tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_text(text)
    with pytest.raises(IntegrityError, match=r"checkpoint: .*/offsets/5 is torn or changed .*Restore the checkpoint"):
        checkpoint.end_offsets(spark, str(tmp_path), 5)


def test_whole_offsets(spark, tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_text(f'v1\n{AT}\n{{"visits":{{"0":50,"1":7}}}}')
    assert checkpoint.end_offsets(spark, str(tmp_path), 5) == {0: 50, 1: 7}
    assert checkpoint.end_offsets(spark, str(tmp_path), 6) is None
    assert checkpoint.logged(spark, str(tmp_path), 5).watermark == 1756968660000
    assert [checkpoint.late_watermark(spark, str(tmp_path), batch) for batch in (6, 5, 0)] == [1756968660000, 0, 0]


@pytest.mark.parametrize(
    ("source", "line", "end"),
    [("live", '{"visits":{"0":50}}', {0: 50}), ("feed", '{"reservoirVersion":3,"index":-1}', None)],
)
def test_offsets_of_a_source_with_a_name(spark, tmp_path, source, line, end):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_text(f"v2\n{AT}\n{source}:{line}")
    assert checkpoint.end_offsets(spark, str(tmp_path), 5) == end
    assert checkpoint.logged(spark, str(tmp_path), 5) == checkpoint.Logged(source, line, 1756968660000)


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def driver(settings, monkeypatch):
    """A driver whose checkpoint has committed batch 3, from 5 to 9, and whose group is a list of commits."""
    committed = []
    monkeypatch.setattr(module, "Broker", lambda _: SimpleNamespace(commit=lambda *a: committed.append(a)))
    answers = {
        "last_committed": 3,
        "start_offsets": {0: 5},
        "end_offsets": {0: 9},
        "logged": checkpoint.Logged("", "", 0),
        "late_watermark": 0,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(module.checkpoint, name, lambda *_, answer=answer: answer)
    with writing(settings.registry_url) as connection:
        token = leases.take(connection, OWNER, leases.this_driver())
    guard = SimpleNamespace(token=token, check_token=lambda: None)
    spark = SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))
    made = Driver(settings, Source(OWNER, "visits", "/checkpoint", group=OWNER), guard, spark)
    made.committed = committed
    return made


@pytest.mark.parametrize("recorded", [None, 2])
def test_what_a_crash_kept_from_registry_or_group_is_made_up_for_at_the_next_start(settings, driver, recorded):
    if recorded is not None:
        with writing(settings.registry_url) as connection:
            progress.record(connection, OWNER, 1, Batch(3, {0: 5}, {0: 9}, recorded, now()))
    driver.run(lambda: SimpleNamespace(awaitTermination=lambda _: True))
    assert driver.committed == [(OWNER, "visits", {0: 9})]
    with writing(settings.registry_url) as connection:
        found = progress.newest(connection, OWNER)
    # Where its rows were counted already they stay: offsets without a record are not among them.
    assert (found.batch, found.rows) == (3, recorded or 4)


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: out not present", RetryError),
        ("org.apache.kafka.common.errors.RecordTooLargeException: 2 MB", RewindError),
    ],
)
def test_only_a_world_that_is_away_asks_for_a_retry(driver, text, raised):
    def fails(_):
        raise StreamingQueryException(text)

    with pytest.raises(RewindError) as seen:
        driver.run(lambda: SimpleNamespace(awaitTermination=fails))
    assert type(seen.value) is raised
