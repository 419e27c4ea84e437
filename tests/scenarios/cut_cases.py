"""The same records in few batches or many: what each shipped pipeline with state must give of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support import cuts, fakes
from tests.support.cuts import Arrival, Job

BEGIN = datetime(2025, 9, 4, tzinfo=UTC)
STEP = timedelta(seconds=36)
USERS = 20
WINDOW, PAUSE = 600_000, 600_000
MINUTE = 60_000
REPEATED, DISORDERED = 0.05, 0.3

Results = dict[Any, Any]
"""Key and value of each result; instants in milliseconds since 1970."""


def visits(count: int, delay: int, seed: int = 7) -> list[dict[str, Any]]:
    """Return visits in the order of their arrival: some out of order, some repeated, none late in any cut.

    Args:
        count: How many there are, repeats left out.
        delay: How far the watermark lags behind event time, in milliseconds: none lies as far behind the latest.
        seed: Of what is drawn.
    """
    drawn, made, latest = random.Random(seed), [], 0
    for number in range(count):
        time = int((BEGIN + STEP * number).timestamp() * 1000) + drawn.randrange(1000)
        if drawn.random() < DISORDERED:
            time -= drawn.randrange(delay - MINUTE)
        latest = max(latest, time)
        # Behind the latest of all, not behind its own place.
        time = max(time, latest - delay + MINUTE)
        body = {
            "event_id": f"v{number}",
            "visit_id": number,
            "user_id": drawn.randrange(USERS),
            "page": f"p{number % 7}",
        }
        made.append({**body, "event_time": time})
        if drawn.random() < REPEATED:
            again = made[drawn.randrange(max(0, len(made) - 10), len(made))]
            if again["event_time"] > latest - delay + MINUTE:
                made.append(again)
    return made


def windows(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """Give the end, key and value of each window."""
    counts = Counter(visit["event_time"] // WINDOW * WINDOW for visit in made)
    for start, count in counts.items():
        yield start + WINDOW, start, (start + WINDOW, count)


def sessions(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """Give the end, key and value of each session."""
    for user in range(USERS):
        times = sorted(visit["event_time"] for visit in made if visit["user_id"] == user)
        begun: list[list[int]] = []
        for time in times:
            if begun and time - begun[-1][-1] <= PAUSE:
                begun[-1].append(time)
            else:
                begun.append([time])
        for one in begun:
            yield one[-1] + PAUSE + 1, (user, one[0]), (one[-1], one[-1] + PAUSE + 1, len(one))


def firsts(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """Give the end, key and value of each event."""
    for visit in {visit["event_id"]: visit for visit in made}.values():
        yield visit["event_time"], visit["event_id"], (visit["visit_id"], visit["event_time"], visit["page"])


@dataclass(frozen=True)
class Shipped:
    """A shipped pipeline and what a plain computation over all records gives for it.

    Attributes:
        delay: How far its watermark lags behind event time, in milliseconds.
        oracle: Gives the end, key and value of each result.
        key: Columns of the key.
        value: The other columns.
    """

    delay: int
    oracle: Callable[[Sequence[Mapping[str, Any]]], Iterator[tuple[int, Any, Any]]]
    key: tuple[str, ...]
    value: tuple[str, ...]


SHIPPED = {
    "visits_window_counter": Shipped(20 * MINUTE, windows, ("window_start",), ("window_end", "count")),
    "visits_closed_windows": Shipped(10 * MINUTE, windows, ("window_start",), ("window_end", "count")),
    "visits_sessions": Shipped(
        10 * MINUTE, sessions, ("user_id", "session_start"), ("session_end", "closed_at", "pages")
    ),
    "visits_deduplicated": Shipped(20 * MINUTE, firsts, ("event_id",), ("visit_id", "event_time", "page")),
}


def wanted(name: str, made: Sequence[Mapping[str, Any]]) -> Results:
    """Return what a pipeline must have given of all its closed results."""
    shipped = SHIPPED[name]
    closed = max(visit["event_time"] for visit in made) - shipped.delay
    return {key: value for end, key, value in shipped.oracle(made) if end <= closed}


def found(spark: SparkSession, home: Path, name: str, made: Sequence[Mapping[str, Any]], batches: int) -> Results:
    """Return the newest version of each closed result that a pipeline gives of records in so many batches."""
    pipeline = cuts.shipped(name)
    job = Job(cuts.own_session(spark, pipeline), fakes.installation(home / f"in-{batches}"), pipeline)
    arrivals: list[Arrival] = [(n % cuts.PARTITIONS, _sent(visit)) for n, visit in enumerate(made)]
    job.read(*cuts.cut(arrivals, batches))
    with_records = [ranges for ranges in job.ranges if any(map(len, ranges.values()))]
    assert len(with_records) == batches
    assert job.watermark == max(visit["event_time"] for visit in made) - SHIPPED[name].delay
    return dict(_plain(SHIPPED[name], body) for body in job.newest().values())


def check(spark: SparkSession, home: Path, name: str, count: int, cut: Sequence[int]) -> int:
    """Hold each cut of the same records against the plain computation; return how many results were closed."""
    made = visits(count, SHIPPED[name].delay)
    must = wanted(name, made)
    for batches in cut:
        assert found(spark, home, name, made, batches) == must, f"{name} in {batches} batches"
    return len(must)


def _sent(visit: Mapping[str, Any]) -> dict[str, Any]:
    time = datetime.fromtimestamp(visit["event_time"] / 1000, UTC)
    return {**visit, "event_time": time.isoformat(timespec="milliseconds")}


def _plain(shipped: Shipped, body: Mapping[str, Any]) -> tuple[Any, Any]:
    key, value = (tuple(_instant(body[name]) for name in names) for names in (shipped.key, shipped.value))
    return (key[0] if len(key) == 1 else key), value


def _instant(value: Any) -> Any:
    if isinstance(value, str) and value[:2] == "20":
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    return value
