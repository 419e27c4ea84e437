"""A life of one output whichever job is live: deployed, aborted, taken over, rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

import rewind
from rewind.core import coordinates
from rewind.registry import generations, publications, rewinds
from rewind.runtime import tables
from tests.scenarios.late_visits import produce, visits
from tests.support.workshop import Workshop, wait_for


@dataclass(frozen=True)
class Answer:
    """What an output says of a window: its count, None once it was deleted, and by which version of which job."""

    count: int | None
    version: str
    job: str


LIFE = "deployed, aborted without a trace, taken over, rolled back: readers saw the live job's answers"
Held = Mapping[str, Answer]
Reader = Callable[[Workshop, str], Held]
SHARED = {"shared": True, "vanished": "tombstone"}


def in_topic(shop: Workshop, name: str) -> Held:
    """Return the last record of every key of a topic; of no key it may be older than one before it."""
    last: dict[str, Answer] = {}
    for record in shop.read(name):
        assert record.key is not None
        count = None if record.value is None else json.loads(record.value)["count"]
        found = Answer(count, record.headers[coordinates.VERSION], record.headers[coordinates.JOB])
        key = json.loads(record.key)["window_start"]
        assert key not in last or last[key].version <= found.version
        last[key] = found
    return last


def in_table(spark: SparkSession, shop: Workshop, name: str) -> Held:
    """Return the newest row of every key of a table; a shared one has no other."""
    rows = spark.read.format("delta").load(str(tables.path(shop.settings, name))).collect()
    newest: dict[str, Answer] = {}
    for row in sorted(rows, key=lambda row: str(row["_headers"][coordinates.VERSION])):
        key = json.loads(bytes(row["_key"]))["window_start"]
        assert not (key in newest and name.endswith("-shared"))
        headers = row["_headers"]
        count = None if row["_tombstone"] else row["count"]
        newest[key] = Answer(count, headers[coordinates.VERSION], headers[coordinates.JOB])
    return newest


def counts(held: Held) -> dict[str, int]:
    """Return the windows that an output answers for."""
    return {key: answer.count for key, answer in held.items() if answer.count is not None}


def published(shop: Workshop, job: str, read: Reader) -> publications.Publication:
    """Wait until a job has published all it has written, and return what is recorded of that."""
    found: list[publications.Publication] = []

    def done() -> bool:
        shop.look(job)
        with shop.registry() as connection:
            live = generations.live(connection, shop.pipeline)
            assert live is not None
            seen = publications.find(connection, shop.pipeline, live[1])
        newest = max(answer.version for answer in read(shop, own(shop, job)).values())
        if seen is None or seen.batch is None or seen.batch < int(newest[-19:]):
            return False
        found.append(seen)
        return True

    wait_for(f"{job} published", done)
    return found[0]


def own(shop: Workshop, job: str) -> str:
    """Return the name of a job's own output."""
    return f"{shop.pipeline}-out-g{job[-1]}"


def life_of_a_shared_table(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    """Live the same life on Delta."""
    shop = workshop("sharing_rows", 2, like="visits_window_counter", form="table", output_also=SHARED)
    live_through(shop, lambda of, name: in_table(spark, of, name))


def live_through(shop: Workshop, read: Reader) -> None:
    """Deploy, abort a candidate, cut over to another, and roll back; readers see what the live job answers."""
    shared, (old, aborted, new) = f"{shop.pipeline}-out-shared", (f"{shop.pipeline}-g{n}" for n in (1, 2, 3))
    events: dict[int, list[int]] = {0: [], 1: []}
    assert shop.deploy() == old
    assert rewind.resolve(shop.pipeline, shop.settings.registry_url).output_topic == shared
    for owner in (old, shop.mirror):
        shop.start(owner)
    produce(shop, events, visits(1, 300, 0))
    shop.caught_up(old)
    assert published(shop, old, read).epoch == 1
    first = read(shop, shared)
    assert first == read(shop, own(shop, old))
    shop.caught_up(shop.mirror)

    # The code forgets a window. A candidate that is aborted leaves no trace.
    gone = sorted(first)[2]
    left_out = f"date_format(event_time, 'HH:mm') not like '{gone[11:15]}%'"
    shop.edit_logic("visits.withWatermark", f'visits.where("{left_out}").withWatermark')
    backfilled(shop, "rw-gone")
    assert read(shop, own(shop, aborted))
    shop.abort("rw-gone", "second thoughts")
    assert read(shop, shared) == first

    # Another goes live: its answers take the place of the old job's, and what it lacks is deleted.
    backfilled(shop, "rw-taken")
    shop.start(new)
    shop.caught_up(new)
    shop.step("validate", "rw-taken")
    shop.approve("rw-taken", "the window was wrong")
    shop.step("cut_over", "rw-taken")
    taken = read(shop, shared)
    assert {answer.version[:10] for answer in taken.values()} == {"0000000002"}
    assert counts(taken) == counts(read(shop, own(shop, new)))
    assert (taken[gone].count, counts(first)[gone] > 0) == (None, True)
    with shop.registry() as connection:
        (evidence,) = (
            s.evidence["published"] for s in rewinds.steps_of(connection, "rw-taken") if s.step == "cut_over"
        )
    assert (evidence["epoch"], evidence["stale"], evidence["vanished"]) == (2, 0, 1)

    # Both go on; readers see the live one's answers.
    produce(shop, events, visits(2, 300, 300))
    for job in (old, new):
        shop.caught_up(job)
    assert published(shop, new, read).counts.stale == 0
    later = read(shop, shared)
    assert counts(later) == counts(read(shop, own(shop, new)))
    assert len(counts(later)) > len(counts(taken))
    assert {answer.job for answer in later.values() if answer.count is not None} == {new}

    # And back: the old job's answers are there again, those of the window too.
    asked = json.dumps({"dry_run": False, "reason": "it was right"})
    shop.run("rollback", "--rollback-id", f"rb-{shop.pipeline}", "--pipeline", shop.pipeline, "--request", asked)
    back = read(shop, shared)
    assert {answer.version[:10] for answer in back.values()} == {"0000000003"}
    assert counts(back) == counts(read(shop, own(shop, old)))
    assert gone in counts(back)


def backfilled(shop: Workshop, rewind_id: str) -> None:
    """Make the candidate of a rewind from the earliest record."""
    shop.planned(rewind_id, **{"from": "earliest"})
    for step in ("spin_up", "backfill"):
        shop.step(step, rewind_id)
