"""Comparing on after a switch: when it is due, from where on it reads, and what is kept of it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from rewind.core import lifecycle
from rewind.core.errors import IntegrityError, RefusedError, WorldMovedError
from rewind.core.horizon import Frontier, first_unread
from rewind.core.model import Batch, Topic
from rewind.core.observing import next_look
from rewind.core.offsets import OffsetRange
from rewind.core.planning import plan
from rewind.registry import generations, observation, progress, rewinds, verdicts
from rewind.registry.database import now, writing
from rewind.registry.observation import Look
from rewind.registry.verdicts import Verdict
from rewind.steps.compare import new_rows
from rewind.steps.compare.findings import Found
from rewind.steps.lifecycle import cut_over, recheck
from tests.support import fakes
from tests.support.fakes import generation, installation

NOTHING, MINUTE = timedelta(0), timedelta(minutes=1)
OUTPUT = Topic("out", "id-1", {0: 3, 1: 0}, {0: 10, 1: 8})


@pytest.mark.parametrize(
    ("last", "every", "period", "due"),
    [
        (0, 0, 15, 1),
        (1, 0, 15, 2),
        (4, 0, 15, 8),
        (8, 0, 15, 15),
        (0, 5, 15, 5),
        (5, 5, 15, 10),
        (0, 0, 0, 0),
        (0, 20, 15, 15),
    ],
)
def test_comparisons_at_growing_or_equal_pauses_and_at_the_end(last, every, period, due):
    assert next_look(last * MINUTE, every * MINUTE, period * MINUTE) == due * MINUTE


def test_from_where_on_an_output_has_to_be_read():
    assert first_unread(OUTPUT, {}) == {0: 3, 1: 0}
    assert first_unread(OUTPUT, {"id-1": {0: 10, 1: 5}}) == {0: 10, 1: 5}
    # What retention took, a partition that was added, and a topic of the same name that was made anew.
    assert first_unread(OUTPUT, {"id-1": {0: 2}}) == {0: 3, 1: 0}
    assert first_unread(OUTPUT, {"id-0": {0: 9, 1: 9}}) == {0: 3, 1: 0}
    with pytest.raises(IntegrityError, match=r"out lost records: .* \{1: \(9, 8\)\}"):
        first_unread(OUTPUT, {"id-1": {0: 10, 1: 9}})


def test_since_a_ceiling():
    found = Frontier({0: 5, 1: 7}).since({0: 9, 1: 6, 2: 4})
    assert found == {0: OffsetRange(5, 9), 1: OffsetRange(6, 6), 2: OffsetRange(0, 4)}


def test_a_plan_of_an_older_release_is_read():
    body = json.loads(fakes.plan().to_json())
    for name in ("on_difference", "compare_every_seconds"):
        del body["request"][name]
    assert plan.from_json(json.dumps(body)).request == fakes.plan().request


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def comparison(monkeypatch):
    """Comparisons are played: `comparison(counts, ...)` says what the next ones find; returns what they were given."""
    asked, found = [], []

    def compared(spark, settings, live, candidate, horizon, bounds, before):
        assert bounds is None
        asked.append((live.job_id, candidate.job_id, horizon, before.unread))
        return found.pop(0)

    monkeypatch.setattr(new_rows, "session", lambda *_: None)
    monkeypatch.setattr(new_rows.comparison, "compared", compared)

    def play(*results):
        found.extend(results)
        return asked

    return play


@pytest.fixture
def judged(settings):
    """A rewind with an approved verdict that knew of `changed`, up to 5; both jobs at 10."""
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, "visits_converter-g1")
        rewinds.open_rewind(connection, "rw-1", fakes.plan())
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), "rw-1")
        made = Verdict(1, 0, "fail", {0: 0, 1: 0}, {0: 5, 1: 5}, {"rows": 10, "changed": 2}, [], "2 changed", now())
        verdicts.store(connection, "rw-1", made)
        observation.keep_frontier(connection, "rw-1", 1, Frontier({0: 5, 1: 5}, {"id-1": {0: 4}}))
        reach(connection, 10)
    return made


@pytest.fixture
def switched(settings, judged):
    """The same, switched: compared up to 10 at the switch."""
    with writing(settings.registry_url) as connection:
        body = {"epoch": 2, "frontier": observation.to_json(Frontier({0: 10, 1: 10}, {"id-1": {0: 10}}))}
        rewinds.fix(connection, "rw-1", "cut_over", body)


def reach(connection, offset):
    for job in ("visits_converter-g1", "visits_converter-g2"):
        progress.record(connection, job, 1, Batch(offset, {0: 0, 1: 0}, {0: offset, 1: offset}, offset, now()))


def row(name):
    return {"partition": 0, "offset": 1, "class": name}


def test_a_cut_over_reads_on_where_its_verdict_left_off(settings, judged, comparison):
    asked = comparison(Found({"rows": 10, "changed": 3}, unread={"id-1": {0: 9}}))
    with writing(settings.registry_url) as connection:
        jobs = [generations.read(connection, f"visits_converter-g{n}") for n in (1, 2)]
    switch = cut_over.Switch("rw-1", fakes.plan(), *jobs)
    came = cut_over._recheck(settings, switch, judged)
    came_since = {0: OffsetRange(5, 10), 1: OffsetRange(5, 10)}
    assert asked == [("visits_converter-g1", "visits_converter-g2", came_since, {"id-1": {0: 4}})]
    assert came.frontier == Frontier({0: 10, 1: 10}, {"id-1": {0: 9}})
    comparison(Found({"rows": 10, "missing": 1}))
    with pytest.raises(WorldMovedError, match=r"differs in a new way: .'missing': 1"):
        cut_over._recheck(settings, switch, judged)


def test_a_class_that_the_verdict_lacked_is_recorded_with_its_sample(settings, switched, comparison):
    asked = comparison(
        Found({"rows": 4, "changed": 1}, unread={"id-1": {0: 12}}, sample=(row("changed"),)),
        # C13: five rows stand twice in an output whose job was killed within a batch.
        Found(
            {"rows": 6, "changed": 1, "missing": 2, "repeated": 5}, unread={}, sample=(row("changed"), row("missing"))
        ),
    )
    for end in (12, 15):
        with writing(settings.registry_url) as connection:
            reach(connection, end)
        recheck.run(settings, "rw-1")
    # Nothing came since: nothing is compared.
    recheck.run(settings, "rw-1")
    assert [(horizon[0], unread) for _, _, horizon, unread in asked] == [
        (OffsetRange(10, 12), {"id-1": {0: 10}}),
        (OffsetRange(12, 15), {"id-1": {0: 12}}),
    ]
    with writing(settings.registry_url) as connection:
        observed = observation.read(connection, "rw-1")
        assert (observed.looks, observed.rows, observed.differences) == (3, 10, {"missing": 2})
        assert observed.sample == [row("missing")]
        assert observed.told() == "10 rows compared since the switch, DIFFERENCES: 2 missing, 5 repeated"
        states = [(s.step, s.attempt, s.state) for s in rewinds.steps_of(connection, "rw-1")]
    assert states == [("recheck", n, "done") for n in (1, 2, 3)]
    evidence = json.loads((settings.evidence / "rw-1" / "observed-2.json").read_text())
    assert (evidence["differences"], evidence["sample"]) == ({"missing": 2}, [row("missing")])


def test_a_comparison_that_broke_off_is_done_again_from_where_it_began(settings, switched, comparison, monkeypatch):
    with writing(settings.registry_url) as connection:
        reach(connection, 12)
    asked = comparison(Found({"rows": 4}), Found({"rows": 4}))
    record = observation.record

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(observation, "record", broken)
    with pytest.raises(KeyboardInterrupt):
        recheck.run(settings, "rw-1")
    monkeypatch.setattr(observation, "record", record)
    recheck.run(settings, "rw-1")
    assert asked[0] == asked[1]
    with writing(settings.registry_url) as connection:
        assert observation.read(connection, "rw-1").rows == 4


def test_before_the_switch_there_is_nothing_to_observe(settings, judged, comparison):
    with pytest.raises(RefusedError, match="rw-1 has no switch on record"):
        recheck.run(settings, "rw-1")


def test_looks_are_read_in_the_order_they_were_made(settings, judged):
    with writing(settings.registry_url) as connection:
        for attempt in (2, 9, 10):
            look = Look(attempt * MINUTE, Frontier({0: attempt}), {"rows": 1}, {}, [])
            observation.record(connection, "rw-1", attempt, look)
        assert observation.frontier(connection, "rw-1") == Frontier({0: 10})
        assert observation.read(connection, "rw-1").after == 10 * MINUTE
