"""Which results a repair of a pipeline with state makes anew."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.planning import repair_windows
from tests.support import fakes

NOW = datetime(2025, 9, 4, 12, tzinfo=UTC)
CLOSED = int(datetime(2025, 9, 4, 5, 58, tzinfo=UTC).timestamp() * 1000)


def touched(start, end, closed=CLOSED):
    live = fakes.generation()
    batches = [Batch(3, {0: 0}, {0: 9}, 9, NOW, 0, closed)] if closed else []
    return repair_windows.touched(start, end, live, fakes.FakeLifecycle(live, batches=batches), "visits", NOW)


def test_bounds_are_instants_of_event_time():
    assert touched("2025-09-04T05:00:00Z", "2025-09-04T05:58:00Z") == (CLOSED - 58 * 60_000, CLOSED)


def test_a_duration_counts_back_from_now():
    assert touched("PT7H", "2025-09-04T05:10:00Z")[0] == CLOSED - 58 * 60_000


@pytest.mark.parametrize(
    ("start", "end", "closed", "field", "problem"),
    [
        ("earliest", "2025-09-04T05:10:00Z", CLOSED, "from", "'earliest' is not a timestamp"),
        ("2025-09-04T05:00:00Z", '{"visits":{"0":9}}', CLOSED, "to", "is not a timestamp"),
        ("2025-09-04T05:10:00Z", "2025-09-04T05:10:00Z", CLOSED, "to", "empty or inverted"),
        ("2025-09-04T05:00:00Z", "2025-09-04T05:58:01Z", CLOSED, "to", "closed results up to 2025-09-04T05:58:00"),
        ("2025-09-04T05:00:00Z", "2025-09-04T05:10:00Z", 0, "to", "closed results up to 1970"),
    ],
)
def test_what_cannot_be_repaired(start, end, closed, field, problem):
    with pytest.raises(RefusedError) as raised:
        touched(start, end, closed)
    assert raised.value.field == field
    assert problem in raised.value.problem
