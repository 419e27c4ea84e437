"""Nights of a real scheduler: backfills drive the intervals of the pipeline's own DAG."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from rewind.core.offsets import total
from rewind.registry import nightly_replays
from rewind.registry.nightly_replays import Replayed
from tests.scenarios.nightly_life import nothing_left, plant, visit
from tests.support.mailbox import Mailbox
from tests.support.stage import Stage
from tests.support.workshop import wait_for

PARIS = ZoneInfo("Europe/Paris")
SCHEDULE = {"REWIND_NIGHTLY_SCHEDULE": "30 2 * * *", "REWIND_NIGHTLY_ZONE": "Europe/Paris"}
SPRING, AUTUMN = datetime(2025, 3, 27, 2, 30, tzinfo=PARIS), datetime(2025, 10, 23, 2, 30, tzinfo=PARIS)
"""First instants of two weeks, a clock change in the middle of each."""
NIGHTS = 7
STEP = timedelta(minutes=30)
"""Between two records."""
SECONDS = 1_500.0
LIVE = "weekly-g1"


def two_weeks(stage: Stage, box: Mailbox) -> dict[str, object]:
    """Live two weeks, a night at a time, and return what came out."""
    box.connect(stage.api)
    week = _Week(stage)
    week.write(SPRING, SPRING + timedelta(days=4))
    assert stage.deploy() == LIVE
    week.backfill(SPRING, 4)
    # Older than the second night, which is over: it belongs to the one that comes next.
    stage.shop.produce(visit(99_999, SPRING), at=lambda _: SPRING + timedelta(days=1, hours=1))
    late = week.shop.end()[0] - 1
    week.write(SPRING + timedelta(days=4), SPRING + timedelta(days=NIGHTS))
    week.caught_up()
    drifted = week.plant(SPRING + timedelta(days=5, hours=3))
    week.backfill(SPRING + timedelta(days=4), NIGHTS - 4)
    week.write(AUTUMN, AUTUMN + timedelta(days=NIGHTS))
    week.caught_up()
    week.backfill(AUTUMN, NIGHTS)
    found = week.found()
    replayed = [night for night in found if night.attempt]
    missed = [night for night in found if not night.attempt]
    _each_once(stage, found)
    assert [night.label for night in replayed] == [*_dates(SPRING), *_dates(AUTUMN)]
    assert {night.state for night in missed} == {"not_replayed"}
    other = {n.label: (n.state, n.reason) for n in replayed if n.state != "consistent"}
    assert list(other) == [drifted], other
    assert other[drifted][0] == "drifted", other
    hours = sorted({round((n.end_at - n.start_at) / timedelta(hours=1)) for n in replayed})
    fifth = next(night for night in replayed if night.label == _dates(SPRING)[4])
    assert late == fifth.ranges[0].start, "the night after it was written"
    nothing_left(stage.shop)
    wait_for("the mail of the drift", lambda: bool(box.told("drift")))
    assert f"weekly {drifted}" in box.told("drift")
    return {
        "nights_replayed": len(replayed),
        "hours_of_a_night": hours,
        "nights_listed_as_not_replayed": len(missed),
        "records_replayed_once": sum(night.counts["rows"] for night in replayed),
        "records_written": total_of(stage),
        "drift_found_on": drifted,
        "written_late_and_replayed_on": fifth.label,
        "told_of_it": len([mail for mail in box.mails if mail["Subject"] == "drift"]),
        **_again(week),
    }


def total_of(stage: Stage) -> int:
    return sum(stage.shop.end().values())


class _Week:
    def __init__(self, stage: Stage) -> None:
        self.stage, self.shop = stage, stage.shop
        self.dag = f"nightly_replay_{stage.shop.pipeline}"
        self.written = 0

    def write(self, first: datetime, last: datetime) -> None:
        """Write a record each half hour, in UTC, to each partition."""
        begin, count = first.astimezone(UTC), int((last.astimezone(UTC) - first.astimezone(UTC)) / STEP)
        for partition in range(len(self.shop.end())):
            at = [begin + n * STEP for n in range(count)]
            rows = [visit(self.written + n, at[n]) for n in range(count)]
            self.shop.produce(*rows, partition=partition, at=lambda n, at=at: at[n])
            self.written += count

    def caught_up(self) -> None:
        self.stage.at_end(LIVE)
        self.stage.at_end(self.shop.mirror)

    def backfill(self, first: datetime, count: int, **more: Any) -> None:
        """Drive so many intervals, in order, by Airflow's own backfill, and wait until their runs have ended."""
        last = (first + timedelta(days=count - 1)).astimezone(UTC)
        body = {
            "dag_id": self.dag,
            "from_date": first.astimezone(UTC).isoformat(),
            "to_date": last.isoformat(),
            "max_active_runs": 1,
            "run_backwards": False,
            "dag_run_conf": {},
            "reprocess_behavior": "none",
            **more,
        }
        made = self.stage.api.call("POST", "/api/v2/backfills", body)["id"]
        path = f"/api/v2/backfills/{made}"
        wait_for("the backfill", lambda: self.stage.api.call("GET", path)["completed_at"] is not None, SECONDS)

    def plant(self, at: datetime) -> str:
        """Let live have answered otherwise once, and return the date of the night."""
        wanted = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
        plant(self.shop, lambda answer: wanted in (answer.value or b"").decode())
        return at.date().isoformat()

    def found(self) -> list[Replayed]:
        """Return all nights of the whole topic, oldest first."""
        with self.shop.registry() as connection:
            newest = nightly_replays.newest(connection, 1_000, self.shop.pipeline)
        return [night for night in reversed(newest) if night.sample.whole]


def _dates(first: datetime) -> list[str]:
    return [(first + timedelta(days=n)).date().isoformat() for n in range(NIGHTS)]


def _each_once(stage: Stage, found: list[Replayed]) -> None:
    """Check that the nights join without gap or overlap, in time and in offsets, and hold what was written."""
    for one, other in itertools.pairwise(found):
        assert one.end_at == other.start_at
        assert {p: r.end for p, r in one.ranges.items()} == {p: r.start for p, r in other.ranges.items()}
    assert {r.start for r in found[0].ranges.values()} == {0}
    assert {p: r.end for p, r in found[-1].ranges.items()} == stage.shop.end()
    compared = {night.replay_id: night.counts.get("rows", 0) for night in found}
    assert compared == {night.replay_id: total(night.ranges) for night in found}


def _again(week: _Week) -> Mapping[str, object]:
    """C27: ask Airflow for a date that has a run already, with other parameters, and see what the report says."""
    date = SPRING.date().isoformat()
    before = next(night for night in week.found() if night.label == date)
    week.backfill(SPRING, 1, dag_run_conf={"partitions": [1]}, reprocess_behavior="completed")
    with week.shop.registry() as connection:
        of_date = [night for night in nightly_replays.newest(connection, 1_000, "weekly") if night.label == date]
    assert before.replay_id in {night.replay_id for night in of_date}
    kept = week.shop.settings.evidence / before.replay_id / "night-1.json"
    assert json.loads(kept.read_text())["about"]["replayed"] == "all partitions"
    some = [night for night in of_date if night.sample.partitions == (1,)]
    for night in some:
        body = json.loads((week.shop.settings.evidence / night.replay_id / f"night-{night.attempt}.json").read_text())
        assert (list(body["ceiling"]), body["about"]["replayed"]) == (["1"], "partitions 1")
        assert night.counts["rows"] == len(night.ranges[1])
    whole = next(night for night in of_date if night.sample.whole)
    # Either it was replayed as asked, or the report says what was replayed instead.
    assert (len(some), whole.attempt) in ((1, 1), (0, 2))
    return {"c27_backfilled_again": "partition 1, a report of its own" if some else "all partitions, and says so"}
