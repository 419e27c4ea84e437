"""What keeps the history of a pipeline with state from being read twice, in part, or without the lease."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rewind.adapters import checkpoint
from rewind.core.errors import IntegrityError, LeaseLostError, RefusedError
from rewind.core.offsets import OffsetRange
from rewind.registry import chunk_log
from rewind.registry.database import writing
from rewind.steps.feed import feeding
from rewind.steps.feed.feeding import Feeding
from tests.support.fakes import generation, installation

JOB, REWIND = "visits_converter-g2", "rw-1"


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path)


@pytest.fixture
def fed(settings):
    """A feeding of one chunk, made without Spark."""
    made = object.__new__(Feeding)
    made._settings, made._rewind_id, made._spark = settings, REWIND, None
    made._generation, made._feed, made._checkpoint = generation(number=2), "/feed", "/checkpoint"
    with writing(settings.registry_url) as connection:
        chunk_log.add_wave(connection, REWIND, 0, [{0: OffsetRange(0, 5)}])
    return made


def test_a_history_that_kafka_has_taken_over_from_is_not_read_again(fed, monkeypatch):
    monkeypatch.setattr(feeding, "taken_over", lambda *_: True)
    monkeypatch.setattr(feeding.feed, "create", lambda *_: pytest.fail("the feed was touched"))
    fed.run([], 1, {}, SimpleNamespace())


def test_a_batch_that_reads_more_than_one_chunk_is_an_error(fed):
    fed._consumed = lambda batch: {0: 0, 1: 0, 2: 2}[batch]
    assert fed._chunk_of(1) is None
    with pytest.raises(IntegrityError, match="batch 2 reads chunks 0 to 2 of its feed: it must be one"):
        fed._chunk_of(2)


def test_no_chunk_is_fed_without_the_lease(settings, fed, monkeypatch):
    def lost():
        raise LeaseLostError("lost")

    fed._history = SimpleNamespace(read=lambda *_: (None, 5, 0))
    fed._guard = SimpleNamespace(check=lost)
    monkeypatch.setattr(feeding.feed, "append", lambda *_: pytest.fail("written without the lease"))
    with writing(settings.registry_url) as connection:
        (chunk,) = chunk_log.read(connection, REWIND)
    with pytest.raises(LeaseLostError):
        fed._fill(chunk, 1, {})


@pytest.mark.parametrize(
    ("begun", "committed", "read", "problem"),
    [
        (2, 1, 2, r"batch 2 of visits_converter-g2's history is not committed \(the last one that is: 1\)"),
        (None, None, 0, "batch None of visits_converter-g2's history is not committed"),
        (1, 1, 2, "visits_converter-g2 has read 2 of the 3 chunks of its history"),
        (2, 2, 3, ""),
    ],
)
def test_kafka_takes_over_when_the_feed_is_read_and_committed_to_its_end(
    settings, monkeypatch, begun, committed, read, problem
):
    end = f'{{"reservoirVersion":{read + 1},"index":-1}}'
    monkeypatch.setattr(feeding.feed, "chunks", lambda *_: 3)
    monkeypatch.setattr(checkpoint, "last_begun", lambda *_: begun)
    monkeypatch.setattr(checkpoint, "last_committed", lambda *_: committed)
    monkeypatch.setattr(checkpoint, "logged", lambda *_: checkpoint.Logged(checkpoint.FEED, end, 0))
    if not problem:
        feeding.check_swap(None, settings, JOB)
        return
    with pytest.raises(RefusedError, match=f"handoff: {problem}"):
        feeding.check_swap(None, settings, JOB)


def test_a_batch_that_ends_within_a_chunk_is_an_error():
    assert feeding.feed.consumed('{"reservoirVersion":3,"index":-1}') == 2
    with pytest.raises(IntegrityError, match="a batch ends within a chunk"):
        feeding.feed.consumed('{"reservoirVersion":3,"index":0}')


@pytest.mark.parametrize(
    ("transaction_of", "files", "landed"),
    [((f"{JOB}-feed", 1), 1, True), ((f"{JOB}-feed", 1), 2, None), ((f"{JOB}-feed", 2), 1, None), (None, 1, None)],
)
def test_the_version_of_a_chunk_is_that_chunk_in_one_file(monkeypatch, transaction_of, files, landed):
    made = SimpleNamespace(transaction=transaction_of, files=("a", "b")[:files])
    monkeypatch.setattr(feeding.feed.delta_log, "entry", lambda *_: made)
    if landed:
        assert feeding.feed._landed(None, "/feed", JOB, 1) is True
        return
    with pytest.raises(IntegrityError, match="version 2 is not chunk 1 in one file"):
        feeding.feed._landed(None, "/feed", JOB, 1)
