"""What adapters ask of Spark and refuse, by what they hand to it; what Spark does with it, `tests/spark` shows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from rewind.adapters import checkpoint, delta_log, delta_output, feed, kafka, mirror
from rewind.adapters.delta_output import Write
from rewind.core.errors import IntegrityError
from rewind.core.offsets import OffsetRange
from tests.support.fakes import installation

AT = '{"batchWatermarkMs":%d}'


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A checkpoint of three batches on the local disk, read without a JVM."""
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    for batch, end in enumerate((10, 20, 30)):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{AT % (batch * 7)}\n{{"visits":{{"0":{end}}}}}')
    for batch in (0, 1):
        (tmp_path / "commits" / str(batch)).touch()
    (tmp_path / "sources/0/0").write_text('v1\n{"visits":{"0":4}}')
    monkeypatch.setattr(checkpoint.files, "read_text", lambda _, path: text_of(path))
    monkeypatch.setattr(checkpoint.files, "names", lambda _, path: sorted(p.name for p in Path(path).glob("*")))
    return str(tmp_path)


def text_of(path):
    return Path(path).read_text() if Path(path).exists() else None


def test_a_batch_begins_where_the_one_before_it_ended(files):
    assert [checkpoint.start_offsets(None, files, batch) for batch in (0, 1, 2)] == [{0: 4}, {0: 10}, {0: 20}]
    assert [checkpoint.end_offsets(None, files, batch) for batch in (0, 1, 2, 3)] == [{0: 10}, {0: 20}, {0: 30}, None]
    assert [checkpoint.late_watermark(None, files, batch) for batch in (0, 1, 2)] == [0, 0, 7]


def test_what_was_begun_and_not_committed_may_be_repeated(files):
    assert (checkpoint.last_begun(None, files), checkpoint.last_committed(None, files)) == (2, 1)
    assert checkpoint.uncommitted(None, files) == {0: OffsetRange(20, 30)}


def test_a_torn_file_of_a_checkpoint_is_not_taken_for_none(files):
    (Path(files) / "offsets" / "1").write_text("v1\n{")
    with pytest.raises(IntegrityError, match="/offsets/1 is torn or changed"):
        checkpoint.end_offsets(None, files, 1)


def test_a_version_of_the_mirror_is_readable_while_all_its_files_are_there(monkeypatch):
    kept = {"/m/table": ["a.parquet", "b c.parquet"]}
    monkeypatch.setattr(mirror.files, "names", lambda _, place: kept[place])
    version = SimpleNamespace(inputFiles=lambda: ["/m/table/a.parquet", "/m/table/b%20c.parquet"])
    monkeypatch.setattr(mirror, "read", lambda *_: version)
    mirror.check_readable(None, "/m/table", 7)
    kept["/m/table"].pop()
    with pytest.raises(IntegrityError, match="mirror version 7 is no longer readable: 1 of its 2 files are gone"):
        mirror.check_readable(None, "/m/table", 7)


def test_a_lost_record_of_kafka_ends_whatever_reads_it(tmp_path):
    spark, settings = MagicMock(), installation(tmp_path)
    kafka.read_range(spark, settings, "visits", {0: 1}, {0: 5}, "read_committed")
    kafka.stream_reader(spark, settings, "visits", {0: 1}, "read_committed", 9)
    batch = spark.read.format.return_value.options.call_args.kwargs
    stream = spark.readStream.format.return_value.options.call_args.kwargs
    assert (batch["startingOffsets"], batch["endingOffsets"]) == ('{"visits":{"0":1}}', '{"visits":{"0":5}}')
    for options in (batch, stream):
        assert (options["failOnDataLoss"], options["includeHeaders"]) == ("true", "true")
        assert (options["kafka.isolation.level"], options["startingOffsets"]) == (
            "read_committed",
            batch["startingOffsets"],
        )


def test_a_chunk_is_fed_once_and_in_one_file(monkeypatch):
    landed = iter([False, True, True, True, False, False])
    monkeypatch.setattr(feed, "_landed", lambda *_: next(landed))
    rows = MagicMock()
    feed.append(rows, "/feed", "job", 3)
    one_file = rows.select.return_value.coalesce
    one_file.assert_called_once_with(1)
    options = one_file.return_value.write.format.return_value.mode.return_value.options
    options.assert_called_once_with(txnAppId="job-feed", txnVersion="3")
    feed.append(rows, "/feed", "job", 3)
    options.assert_called_once()
    with pytest.raises(IntegrityError, match="chunk 3 did not land"):
        feed.append(rows, "/feed", "job", 3)


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([("job", 3, "mine")], True),
        ([("job", 3, "other")], False),
        ([("job", 3, "mine"), ("another", 9, "x"), ("job", 4, "y")], True),
        ([("job", 3, "mine"), ("job", 2, "z")], False),
        ([], False),
    ],
)
def test_a_write_that_did_not_land_is_forgiven_where_the_table_holds_it(monkeypatch, versions, found):
    def entry(_, path, version):
        name, number, metadata = versions[version]
        return SimpleNamespace(transaction=(name, number), metadata=metadata)

    monkeypatch.setattr(delta_log, "versions", lambda *_: list(range(len(versions))))
    monkeypatch.setattr(delta_log, "entry", entry)
    assert delta_output._held(None, "/table", ("job", 3), "mine") is found


def test_a_write_that_neither_landed_nor_is_held_is_an_error(monkeypatch):
    monkeypatch.setattr(delta_log, "versions", lambda *_: [])
    with pytest.raises(IntegrityError, match="write 3 of job did not land"):
        delta_output._append(MagicMock(), "/table", Write("job", 3, 3, {0: OffsetRange(0, 5)}))


def add(partition, first, last, records=2):
    ends = {"minValues": first, "maxValues": last}
    values = {name: {"partition": partition, **({"timestamp": at} if at else {})} for name, at in ends.items()}
    return {"add": {"path": "a", "size": 1, "dataChange": True, "stats": json.dumps({"numRecords": records, **values})}}


def test_times_of_a_commit_are_those_of_its_files_where_all_tell_theirs(tmp_path, monkeypatch):
    added = [
        add(0, "2025-09-04T10:00:00.005Z", "2025-09-04T10:00:00.007Z"),
        # A session of another zone wrote it.
        add(0, "2025-09-04T11:00:00.004+01:00", "2025-09-04T11:00:00.004+01:00"),
        add(1, "1969-12-31T23:59:59.999Z", "2025-09-04T10:00:00.000Z"),
        add(2, "2025-09-04T10:00:00.000Z", "+57647-08-03T01:00:00.000Z"),
        add(3, "2025-09-04T10:00:00.000Z", "2025-09-04T10:00:00.000Z"),
        add(3, None, None),
    ]
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{7:020d}.json").write_text("\n".join(map(json.dumps, added)))
    monkeypatch.setattr(delta_log.files, "read_text", lambda _, path: text_of(path))
    found = delta_log.entry(None, str(tmp_path), 7)
    begun = 1_756_980_000_000
    assert found.times == {0: (begun + 4, begun + 7), 1: (-1, begun)}
    assert found.counts == {0: 4, 1: 2, 2: 2, 3: 4}
