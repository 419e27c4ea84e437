"""The documents' stateless example, exactly, through the product's jobs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import mirror
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]

PAGES = ["home", "index", "page", "home-2", "index-2", "page-2", "home-3", "index-3", "page-3"]
CLICKS = [
    f'{{"event_id": "click-{n + 1}", "visit_id": 1, "event_time": "2025-09-04T07:{n:02d}:00.000000", "page": "{page}"}}'
    for n, page in enumerate(PAGES)
]
CONVERTED = [
    f'{{"event_identifier":"click-{n + 1}","visit_identifier":1,'
    f'"event_time":"2025-09-04T07:{n:02d}:00.000+02:00","visited_page":"{page}"}}'
    for n, page in enumerate(PAGES)
]


def test_seed_002(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("visits_converter", 1, topic="visits", output="visits_converted")
    live = shop.deploy()
    shop.start(live)
    shop.start(shop.mirror)
    for batch in range(3):
        shop.produce(*((None, click.encode()) for click in CLICKS[batch * 3 : batch * 3 + 3]))
        shop.caught_up(live)
        shop.caught_up(shop.mirror)

    path = mirror.table_path(shop.settings, "visits")
    event_time = "to_timestamp(get_json_object(cast(value as string), '$.event_time'))"
    rows = (
        spark.read.format("delta")
        .load(path)
        .selectExpr(
            "cast(value as string) as value",
            "partition",
            "offset",
            *(f"{unit}({event_time}) as {unit}" for unit in ("year", "month", "day", "hour")),
        )
        .orderBy("offset")
        .collect()
    )
    assert [tuple(row) for row in rows] == [(click, 0, n, 2025, 9, 4, 7) for n, click in enumerate(CLICKS)]

    output = shop.read("visits_converted-g1")
    assert [(r.offset, r.value.decode()) for r in output] == list(enumerate(CONVERTED))

    shop.planned("rw-seed", **{"from": json.dumps({"visits": {"0": 0}}), "to": json.dumps({"visits": {"0": 3}})})
    for step in ("spin_up", "backfill", "validate"):
        shop.step(step, "rw-seed")
    assert shop.verdict("rw-seed").verdict == "pass"
    shop.approve("rw-seed")
    shop.step("merge", "rw-seed")
    output = shop.read("visits_converted-g1")
    assert [(r.offset, r.value.decode()) for r in output] == list(enumerate([*CONVERTED, *CONVERTED[:3]]))
    assert [r.headers.get("rewind-repair") for r in output] == [None] * 9 + ["1"] * 3
