"""Six ways to ask for a range."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rewind.core.errors import RefusedError
from rewind.core.planning import requested_range

NOW = datetime(2025, 9, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("earliest", requested_range.Earliest()),
        ("  earliest\n", requested_range.Earliest()),
        ("live", requested_range.FromLive()),
        ("2025-09-04T07:00:00+02:00", requested_range.At(datetime(2025, 9, 4, 5, tzinfo=UTC))),
        ("P9D", requested_range.At(datetime(2025, 9, 1, 12, tzinfo=UTC))),
        ("PT90S", requested_range.At(datetime(2025, 9, 10, 11, 58, 30, tzinfo=UTC))),
        ("shift-by:-1000", requested_range.ShiftBy(-1000)),
        ("shift-by:5", requested_range.ShiftBy(5)),
        ('{"visits":{"0":23,"1":-2}}', requested_range.Exactly({0: 23, 1: -2})),
    ],
)
def test_each_form_has_its_value(text, value):
    assert requested_range.parse(text, "visits", "from", NOW) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not a position"),
        ("latest", "'latest' is not a position"),
        ("abc", "'abc' is not a position"),
        ("Earliest", "'Earliest' is not a position"),
        ("2025-02-30T00:00:00Z", "is not an ISO-8601 timestamp"),
        ("2025-09-04T07:00:00", "has no time zone"),
        ("P9", "'P9' is not an ISO-8601 duration"),
        ("P999999999999D", "longer than a century"),
        ("shift-by:", "'' is not an integer"),
        ("shift-by:many", "'many' is not an integer"),
        ("shift-by:1.5", "'1.5' is not an integer"),
        ("{abc}", "is not JSON"),
        ('{"carts":{"0":1}}', "must name the topic 'visits'"),
        ('{"visits":{"0":-3}}', "-3 is no partition or offset"),
    ],
)
@pytest.mark.parametrize("field", ["from", "to"])
def test_a_bad_value_is_refused_with_the_field_named(text, problem, field):
    with pytest.raises(RefusedError) as raised:
        requested_range.parse(text, "visits", field, NOW)

    assert raised.value.field == field
    assert problem in raised.value.problem
