"""Streams: what is wished of them, their failures, and what many of them have committed."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert, select

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.registry import progress, schema, streams
from rewind.registry.database import now
from tests.support.registry import G1, G2, G3

AT = datetime.fromisoformat("2025-09-04T12:00:00.000001")
SECOND = timedelta(seconds=1)
STREAMS = select(schema.streams.c.owner)


@pytest.fixture
def wished(registry):
    """Three streams that shall run."""
    for owner in (G1, G2, G3):
        streams.wish(registry, owner, streams.GENERATION, streams.RUN)
    return registry


def commit(connection, owner, *batches):
    """Record batches as `(number, closing watermark, seconds after the first)`."""
    for number, closing, seconds in batches:
        values = {"owner": owner, "batch": number, "token": 1, "start": {"0": 0}, "end": {"0": number}, "rows": number}
        times = {"at": AT + seconds * SECOND, "late_watermark": closing, "closing_watermark": closing}
        connection.execute(insert(schema.progress).values(**values, **times))


# --- wishes and failures


def test_a_wish_is_kept_and_a_wish_to_run_lifts_a_quarantine(wished):
    for count in range(1, streams.MOST_FAILURES + 1):
        found = streams.count_failure(wished, G1, "torn")
        assert (found.failures, found.last_failure, found.launched) == (count, "torn", None)
    assert found.quarantined_at <= now()
    streams.wish(wished, G1, streams.GENERATION, streams.DRAIN)
    assert (streams.read(wished, G1).wish, streams.read(wished, G1).failures) == ("drain", streams.MOST_FAILURES)
    streams.wish(wished, G1, streams.GENERATION, streams.RUN)
    found = streams.read(wished, G1)
    assert (found.wish, found.failures, found.quarantined_at, found.next_start_at) == ("run", 0, None, None)


def test_starts_are_counted_and_a_launch_is_kept_until_its_end_was_seen(wished):
    assert [streams.count_start(wished, G1) for _ in range(2)] == [1, 2]
    streams.set_launched(wished, G1, {"pid": 2**22, "started": 2**40})
    assert streams.read(wished, G1).launched == {"pid": 2**22, "started": 2**40}
    streams.set_launched(wished, G1, None)
    assert (streams.read(wished, G1).launched, streams.read(wished, G1).launched_at) == (None, None)
    with pytest.raises(RefusedError, match="'nobody' is no stream"):
        streams.count_start(wished, "nobody")


@pytest.mark.parametrize("count", [streams.count_failure, streams.count_absence])
def test_last_words_that_no_text_may_hold_are_kept_as_far_as_it_may(wished, count):
    count(wished, G1, "driver.1.out: \0torn \ufffd \U0001f600")
    assert streams.read(wished, G1).last_failure == "driver.1.out: \ufffdtorn \ufffd \U0001f600"


# --- many streams at once


def test_the_newest_batches_of_many_streams(wished):
    commit(wished, G1, (2, 0, 0), (10, 0, 1))
    commit(wished, G2, (3, 0, 0))
    commit(wished, "other-g1", (99, 0, 0))
    assert {owner: batch.batch for owner, batch in progress.newest_of(wished, STREAMS).items()} == {G1: 10, G2: 3}


def test_counts_are_those_of_the_last_batches_since_an_instant(wished):
    commit(wished, G1, *((n, 0, n) for n in range(6)))
    commit(wished, G2, (0, 0, 0))
    found = progress.counts_since(wished, STREAMS, AT + 3 * SECOND, 100)
    assert found == {G1: [(AT + n * SECOND, n) for n in (5, 4, 3)]}
    assert progress.counts_since(wished, STREAMS, AT, 2)[G1] == [(AT + n * SECOND, n) for n in (5, 4)]


def test_since_when_the_watermarks_of_many_streams_stand(wished):
    commit(wished, G1, (0, None, 0), (2, 100, 1), (3, 100, 2), (7, 250, 3), (9, 250, 4), (11, 250, 5))
    commit(wished, G2, (4, 100, 6))
    commit(wished, G3, (0, 0, 0), (1, None, 1))
    assert progress.closing_since(wished, STREAMS) == {G1: AT + 3 * SECOND, G2: AT + 6 * SECOND}


def test_the_batches_at_which_a_watermark_rose(wished):
    commit(wished, G1, (0, None, 0), (2, 100, 1), (3, 100, 2), (7, 250, 3), (9, 200, 4), (11, 300, 5))
    assert [batch.batch for batch in progress.rises(wished, G1, 0)] == [2, 7, 11]
    assert [batch.batch for batch in progress.rises(wished, G1, 101)] == [7, 11]


def test_a_batch_of_an_older_release_has_the_watermark_of_none(wished):
    commit(wished, G1, (3, None, 0), (4, 100, 1))
    assert progress.last_closing(wished, G1, 50).batch == 3
    assert progress.first_closing_after(wished, G1, -1).batch == 3


def test_what_a_stream_has_committed_is_handed_on_and_forgotten(wished):
    progress.record(wished, G1, 1, Batch(4, {0: 5}, {0: 2**53 + 1}, 2**40, AT, 1, 2))
    progress.hand_on(wished, G1, G2)
    assert progress.newest(wished, G2) == progress.newest(wished, G1)
    progress.forget(wished, G1)
    assert (progress.newest(wished, G1), progress.newest(wished, G2).batch) == (None, 4)
