"""Nights of jobs with state: of one whose results may count any record, each goes on from the one before it."""

from __future__ import annotations

from collections.abc import Callable

from rewind.core.offsets import total
from rewind.registry import chunk_log, nightly_replays
from rewind.runtime import tables as folders
from rewind.runtime.drivers import supervise
from tests.scenarios.nightly_life import DAY, FIRST, day, evidence, found, nothing_left, submitted, visit
from tests.support.workshop import Workshop

RECORDS = 40


def endless(workshop: Callable[..., Workshop], count: int, name: str = "line") -> tuple[Workshop, str]:
    """Let a job live some nights in which a visit of any night before makes a repeat."""
    shop = workshop(name, 2, like="visits_deduplicated", state_horizon="unbounded")
    shop.edit_logic('dropDuplicatesWithinWatermark(["event_id"])', 'dropDuplicates(["visit_id"])')
    return shop, lived(shop, count)


def lived(shop: Workshop, count: int) -> str:
    """Deploy the pipeline, write so many nights, and return the live job, which has read them."""
    live = shop.deploy()
    for owner in (live, shop.mirror):
        shop.start(owner)
    # A night at a time: in one batch, a repeat could come first.
    for night in range(count):
        day(shop, night, RECORDS)
        if night:
            repeated(shop, night)
        shop.caught_up(live)
    shop.caught_up(shop.mirror)
    return live


def two_nights(shop: Workshop, live: str) -> None:
    """Replay two nights in a row; the second dies once, when it has taken up what the first one left."""
    assert told(shop, live, 0) == ("consistent", RECORDS - 1, "")
    assert left(shop) == ["line-n1"]
    assert read(shop, "line-n1") == [RECORDS]
    died = submitted(shop, live, 1, environment={"REWIND_CRASH_AT": "after:night.take_up"})
    assert died.code not in (0, 64), died.output[-4000:]
    assert told(shop, live, 1) == ("consistent", RECORDS, "")
    assert left(shop) == ["line-n2"]
    # Of this night its own records alone.
    assert read(shop, "line-n2") == [RECORDS, RECORDS + 10]


def gap_and_damage(shop: Workshop, live: str) -> None:
    """Replay a night that joins nothing, then the one before it, then one whose night before left a torn checkpoint."""
    assert told(shop, live, 3, missed=(2,)) == ("consistent", 4 * RECORDS - 1, "")
    assert left(shop) == ["line-n4"]
    assert read(shop, "line-n4") == [4 * RECORDS + 30]
    # An older night leaves the newest one what it has.
    assert told(shop, live, 2) == ("consistent", RECORDS, "")
    assert left(shop) == ["line-n4"]
    day(shop, 4, RECORDS)
    for owner in (live, shop.mirror):
        shop.caught_up(owner)
    for log in (supervise.checkpoint_folder(shop.settings, "line-n4") / "offsets").iterdir():
        log.write_text("torn")
    assert submitted(shop, live, 4).code != 0
    assert (found(shop, 4).state, left(shop)) == ("error", [])
    assert told(shop, live, 4) == ("consistent", RECORDS, "")
    assert read(shop, "line-n5") == [5 * RECORDS + 30]


def bounded(workshop: Callable[..., Workshop]) -> None:
    """Replay two nights of a job whose results count what lies within half an hour."""
    shop = workshop("bounded", 2, like="visits_window_counter")
    live = lived(shop, 3)
    for night in range(2):
        done = replayed(shop, live, night)
        assert (done.state, done.reason) == ("consistent", "")
        assert done.counts["rows"] == done.counts["equal"] > 0
        nothing_left(shop)


def repeated(shop: Workshop, night: int) -> None:
    """Write ten records of a night that repeat visits of the first one."""
    at = [FIRST + night * DAY + n * DAY / 24 for n in range(10)]
    rows = [visit(n, at[n], event_id=f"again-{night}-{n}") for n in range(10)]
    shop.produce(*rows, partition=1, at=lambda n: at[n])


def told(shop: Workshop, live: str, night: int, missed: tuple[int, ...] = ()) -> tuple[str, int, str]:
    """Replay a night and return its state, how many results were equal, and what else is said."""
    done = replayed(shop, live, night, missed)
    return done.state, done.counts["equal"], done.reason


def replayed(shop: Workshop, live: str, night: int, missed: tuple[int, ...] = ()) -> nightly_replays.Replayed:
    ended = submitted(shop, live, night, missed=missed)
    assert ended.code == 0, ended.output[-4000:]
    done = found(shop, night)
    assert evidence(shop, done)["verdict"] == done.state
    return done


def kept(shop: Workshop) -> str | None:
    """Return the night that the next one may go on from."""
    with shop.registry() as connection:
        found = nightly_replays.kept(connection, shop.pipeline, f"{shop.pipeline}-g1")
    return None if found is None else found.replay_id


def left(shop: Workshop) -> list[str]:
    """Return the nights of which something stands, and check that it is what the next one needs and no more."""
    with shop.registry() as connection:
        standing = nightly_replays.with_scratch(connection, shop.pipeline)
        tables = [table for one in standing for table in nightly_replays.tables_of(connection, one)]
    places = [path for path in shop.settings.generations.glob("*") if "-n" in path.name]
    assert [path.name for path in places] == standing
    assert sorted(name for name in folders.all_names(shop.settings) if "-n" in name) == sorted(tables)
    assert [file for place in places for file in place.rglob("feed/*.parquet")] == []
    return standing


def read(shop: Workshop, replay_id: str) -> list[int]:
    """Return how many source offsets each wave of a replay, and of those it goes on from, has read."""
    with shop.registry() as connection:
        chunks = chunk_log.read(connection, replay_id)
    return [total_of([c for c in chunks if c.wave == wave]) for wave in sorted({c.wave for c in chunks})]


def total_of(chunks: list[chunk_log.Chunk]) -> int:
    return sum(total(chunk.ranges) for chunk in chunks)
