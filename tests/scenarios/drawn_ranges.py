"""Plans, ends and lags of a drawn log, against the oracle: on any broker that keeps the contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange
from rewind.core.planning.plan import Plan, Request
from rewind.core.planning.planner import World, make_plan
from rewind.core.settings import Settings
from rewind.views.status_jobs import Ends, lag_of
from tests.support import range_oracle
from tests.support.drawn_logs import BEGUN, STEP, Drawn, draw, play
from tests.support.fake_ports import FakeLifecycle, FakeMirror
from tests.support.fakes import CODE, PIPELINE, generation
from tests.support.range_oracle import PLAIN, Log
from tests.support.real_broker import RealBroker

NOW = datetime(2100, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOLDS = "the range holds "
LEFT_OUT = " offsets are left out"
ASKED = 6
"""Ranges by time that are asked for on each log."""
CLEANED_EVERY = 4


def check(seed: int, kafka: Any, topic: str, *, cleaned: bool) -> Drawn:
    """Write the log of a seed, and compare all that is told of it with the oracle."""
    random = Random(seed)
    drawn = draw(random, cleaned)
    kafka.make(topic, drawn.partitions, **drawn.config)
    log = play(drawn, kafka, topic)
    read = {(r.partition, r.offset): r.timestamp for r in kafka.read_all(topic)}
    _same_records(log, drawn, read)
    if "compact" in drawn.config.get("cleanup.policy", ""):
        kafka.clean(topic)
        read = {(r.partition, r.offset): r.timestamp for r in kafka.read_all(topic)}
    _ends(log, kafka, topic)
    _lags(random, log, kafka, topic)
    mirror = _mirrored(random, log, read, kafka, topic)
    for _ in range(ASKED):
        _plan(random, log, mirror, kafka, topic)
    return drawn


def on_a_broker(settings: Settings, seed: int, logs: int) -> tuple[set[str], int, int]:
    """Compare so many drawn logs on a real broker with the oracle.

    Returns:
        The clocks that were drawn, how many topics were cleaned, and on how many a transaction was left open.
    """
    kafka = RealBroker(settings)
    drawn = [check(seed * logs + n, kafka, f"drawn-{seed}-{n}", cleaned=n % CLEANED_EVERY == 0) for n in range(logs)]
    cleaned = sum("cleanup.policy" in log.config for log in drawn)
    return {log.clock for log in drawn}, cleaned, sum(map(_left_open, drawn))


def _left_open(drawn: Drawn) -> bool:
    wrote = {writer for writer, *what in drawn.writes if len(what) == 2}
    return bool(wrote - {writer for writer, *what in drawn.writes if len(what) == 1} - {PLAIN})


def _same_records(log: Log, drawn: Drawn, read: dict[tuple[int, int], int]) -> None:
    known = log.records()
    if drawn.clock == "the broker's":
        assert read.keys() == known.keys()
    elif "cleanup.policy" in drawn.config:
        # The cleaner may have begun.
        assert read.items() <= known.items()
    else:
        assert read == known


def _ends(log: Log, kafka: Any, topic: str) -> None:
    found, free = kafka.topic(topic), kafka.uncommitted().topic(topic)
    assert (found.latest, found.end()) == (log.readable(), log.written())
    assert (free.latest, free.end(), free.held()) == (log.written(), log.written(), {})
    assert found.earliest == dict.fromkeys(range(log.partitions), 0)


def _lags(random: Random, log: Log, kafka: Any, topic: str) -> None:
    ends, found = Ends(kafka, ""), kafka.topic(topic)
    live = _position(random, log)
    row = SimpleNamespace(state="live", topic_id=found.id, isolation="read_committed")
    lag, held, note = lag_of(live, row, ends, topic)
    assert (lag, note) == (range_oracle.lag(log, live), "; ".join(range_oracle.held(log)))
    assert sum(map(len, held.values())) == sum(log.written().values()) - sum(log.readable().values())
    free = SimpleNamespace(state="live", topic_id=found.id, isolation="read_uncommitted")
    assert lag_of(live, free, ends, topic) == (lag, {}, "")


def _position(random: Random, log: Log) -> dict[int, int]:
    return {p: random.choice((end, random.randint(0, end))) for p, end in log.readable().items()}


def _mirrored(
    random: Random, log: Log, read: dict[tuple[int, int], int], kafka: Any, topic: str
) -> tuple[FakeMirror, dict[tuple[int, int], int], dict[int, int]]:
    """Mirror a log in drawn commits, some of an older release, to its end or not; return what is mirrored."""
    mirror, at = FakeMirror(kafka, transactional=True), dict.fromkeys(range(log.partitions), 0)
    goal = {p: random.choice((end, end, random.randint(0, end))) for p, end in log.readable().items()}
    first = True
    while first or at != goal:
        step = {p: min(goal[p], at[p] + random.randint(0, 6)) for p in at}
        ranges = {p: OffsetRange(at[p], step[p]) for p in at if first or step[p] > at[p]}
        records = {
            (p, o): EPOCH + timedelta(milliseconds=ms)
            for (p, o), ms in read.items()
            if p in ranges and at[p] <= o < step[p]
        }
        mirror.older = random.random() < 0.2
        mirror.append(topic, ranges, records)
        at, first = step, False
    held = {(p, o): ms for (p, o), ms in read.items() if o < goal[p]}
    for p, o in [place for place in held if random.random() < 0.03]:
        # Taken out on purpose, as privacy asks.
        mirror.record_deletion(topic, p, OffsetRange(o, o + 1))
        del held[p, o], mirror.timestamps[topic, kafka.topic(topic).id][p, o]
    return mirror, held, goal


def _plan(random: Random, log: Log, mirrored: Any, kafka: Any, topic: str) -> None:
    mirror, records, reach = mirrored
    since, until = _asked(random, records), _asked(random, records)
    if since is None and until is None:
        return
    expected = range_oracle.wanted(log, records, reach, since, until)
    asked = Request(PIPELINE.name, _text(since) or "earliest", _text(until))
    found = kafka.topic(topic)
    # The broker is shared with tests that have repairs of the sample pipeline's names.
    pipeline = replace(PIPELINE, source_topic=topic, output_topic=f"{topic}-out", transactional=True)
    live = generation(pipeline, topic_id=found.id, start=dict.fromkeys(reach, 0), handoff=dict.fromkeys(reach, 0))
    world = World(kafka, mirror, FakeLifecycle(live), 1 << 40)
    inverted = since is not None and until is not None and since >= until
    if inverted or (until is not None and expected.start == expected.end):
        with pytest.raises(RefusedError, match="the range is empty"):
            make_plan(asked, pipeline, CODE, world, NOW)
        return
    plan = make_plan(asked, pipeline, CODE, world, NOW)
    assert (plan.start, plan.end) == (expected.start, expected.end), (topic, asked, expected, plan)
    assert [line for line in plan.warnings if "open transaction" in line] == range_oracle.held(log)
    _told(plan, expected)


def _told(plan: Plan, expected: range_oracle.Wanted) -> None:
    others = _number(plan, HOLDS, lambda line: line.removeprefix(HOLDS))
    unknown = _number(plan, "the times of ", lambda line: line.removeprefix("the times of "))
    assert others <= expected.others <= others + unknown
    assert _number(plan, LEFT_OUT, lambda line: line) == expected.unread


def _number(plan: Plan, told: str, cut: Any) -> int:
    return sum(int(cut(line).split(" ")[0].replace(",", "")) for line in plan.warnings if told in line)


def _asked(random: Random, records: dict[tuple[int, int], int]) -> int | None:
    """Return an instant: of a record, next to one, somewhere, or none."""
    if random.random() < 0.25:
        return None
    if not records or random.random() < 0.3:
        return BEGUN + random.randint(-STEP, 40 * STEP)
    return random.choice(list(records.values())) + random.choice((-1, 0, 0, 1))


def _text(at: int | None) -> str:
    return "" if at is None else (EPOCH + timedelta(milliseconds=at)).isoformat()
