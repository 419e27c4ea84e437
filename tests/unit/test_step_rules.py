"""Rules of single steps that decide by values alone, and how a main ends."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rewind.core.errors import IntegrityError, RefusedError, RetryError
from rewind.core.model import Batch
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import KEEP, TOMBSTONE
from rewind.core.planning.plan import Request
from rewind.registry import progress, rewinds
from rewind.registry.database import now, writing
from rewind.steps.base import recording
from rewind.steps.generation import cut_trial
from rewind.steps.lifecycle import backfill
from rewind.steps.lifecycle import plan as plan_step
from rewind.steps.lifecycle.backfill import Work
from rewind.steps.mirroring import mirror
from rewind.steps.mirroring.mirror import Writer
from rewind.steps.streaming.publish import Publisher
from tests.support import fakes
from tests.support.fakes import PIPELINE, generation, installation, topic

LIVE = "visits_converter-g1"


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path)


def work(pipeline=PIPELINE, **changes):
    return Work("rw-1", fakes.plan(**changes), pipeline, generation(number=2))


@pytest.mark.parametrize(
    ("done", "covered", "close"),
    [
        ({0: 90}, 90, True),  # within the gate
        ({0: 89}, 89, False),  # one more than the gate, less than half of the wave
        ({0: 40}, 40, True),  # the wave cannot keep up
        ({0: 60}, 80, False),  # just half
    ],
)
def test_waves_end_within_the_gate_or_where_they_come_no_closer(done, covered, close):
    at_ten = work(replace(PIPELINE, lag_gate=10))
    assert backfill._close_enough(at_ten, done, covered, topic({0: 0}, {0: 100})) is close


def test_a_repair_ends_at_its_end():
    repair = work(kind="repair", end={0: 7})
    assert not backfill._close_enough(repair, {0: 6}, 6, topic({0: 0}, {0: 6}))
    assert backfill._close_enough(repair, {0: 7}, 7, topic({0: 0}, {0: 100}))


def test_a_history_with_state_ends_with_a_batch_of_live(settings):
    with writing(settings.registry_url) as connection:
        for number, end in ((1, {0: 10, 1: 4}), (2, {0: 20, 1: 8}), (3, {0: 30, 1: 9})):
            progress.record(connection, LIVE, 1, Batch(number, {0: 0, 1: 0}, end, 1, now()))
    state, source = fakes.mirror({0: (0, 25), 1: (0, 9)}), topic({0: 0, 1: 0}, {0: 40, 1: 9})
    with_state = work(replace(PIPELINE, stateful=True))
    assert backfill._wave_end(settings, with_state, state, {0: 0, 1: 0}, source) == {0: 20, 1: 8}
    assert backfill._wave_end(settings, work(), state, {0: 0, 1: 0}, source) == {0: 25, 1: 9}
    # Never back behind what is fed.
    assert backfill._wave_end(settings, with_state, state, {0: 22, 1: 8}, source) == {0: 22, 1: 8}


@pytest.mark.parametrize(
    ("raised", "code"),
    [(None, 0), (RefusedError("to", "is empty", "Give it"), 64), (RetryError("away"), 75), (ValueError("bug"), 1)],
)
def test_a_main_ends_with_the_code_of_its_error(settings, monkeypatch, raised, code):
    def body(_):
        if raised is not None:
            raise raised

    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert recording.run(body, "test") == code


@pytest.mark.shows("secure", id_of_another_apply_plan="refused")
def test_a_plan_of_another_pipeline_is_not_applied(settings, monkeypatch):
    monkeypatch.setattr(plan_step.pipelines, "load", lambda *_: PIPELINE)
    monkeypatch.setattr(plan_step, "session", lambda *_: pytest.fail("it was gone on with"))
    made = fakes.plan()
    with writing(settings.registry_url) as connection:
        rewinds.store_plan(connection, made)
    with pytest.raises(RefusedError, match=f"apply_plan: plan {made.id} is of visits_converter"):
        plan_step._made(settings, Request("other"), made.id)


@pytest.mark.parametrize(
    ("vanished", "whole", "asked"), [(TOMBSTONE, True, True), (TOMBSTONE, False, False), (KEEP, True, False)]
)
def test_only_what_a_whole_output_lacks_gets_a_tombstone(monkeypatch, vanished, whole, asked):
    publisher = object.__new__(Publisher)
    publisher._generation, publisher._pipeline = generation(), replace(PIPELINE, vanished=vanished)
    publisher._target = SimpleNamespace(held=lambda: SimpleNamespace(limit=lambda rows: f"limited to {rows}"))
    monkeypatch.setattr("rewind.steps.streaming.publish._starts", lambda _: None)
    monkeypatch.setattr("rewind.transforms.records.merging.tombstones", lambda *_: "tombstones")
    made = SimpleNamespace(whole=whole, keys=SimpleNamespace(distinct=lambda: None))
    assert publisher._gone(made, "v") == ("tombstones" if asked else "limited to 0")


@pytest.mark.parametrize(
    ("landed", "held", "lost"),
    [([("app", 3)], False, False), ([], True, False), ([("app", 2)], False, True), ([], False, True)],
)
def test_a_batch_of_the_mirror_that_did_not_land_is_an_error(monkeypatch, landed, held, lost):
    writer = object.__new__(Writer)
    writer._spark, writer._topic, writer.path, writer.checkpoint = None, topic({0: 0}, {0: 9}), "/t", "/c"
    writer._application = lambda: "app"
    writer._watch, writer._checked = SimpleNamespace(look=lambda _: None, changes=[]), 0
    writer.catch_up = lambda: [SimpleNamespace(transaction=pair) for pair in landed]
    writer._holds = lambda ranges: held and ranges == {0: OffsetRange(2, 5)}
    monkeypatch.setattr(mirror.checkpoint, "start_offsets", lambda *_: {0: 2})
    monkeypatch.setattr(mirror.checkpoint, "end_offsets", lambda *_: {0: 5})
    monkeypatch.setattr(mirror.kafka, "as_records", lambda records: records)
    monkeypatch.setattr(mirror.table, "append", lambda *_, **__: None)
    if not lost:
        writer.append(None, 3)
        return
    with pytest.raises(IntegrityError, match="mirror of visits: batch 3 did not land"):
        writer.append(None, 3)


@pytest.mark.parametrize(
    ("declared", "found", "tried"),
    [
        ({"functions": ("cleaned",)}, topic({0: 5, 1: 900}, {0: 7, 1: 2_000}), ({0: 5, 1: 1_500}, {0: 7, 1: 2_000})),
        ({"functions": ("cleaned",)}, topic({0: 7}, {0: 7}), None),
        ({"functions": ("cleaned",)}, None, None),
        ({"functions": ("cleaned",), "stateful": True}, topic({0: 5}, {0: 7}), None),
        ({}, topic({0: 5}, {0: 7}), None),
    ],
)
def test_declared_functions_are_tried_on_the_newest_records(monkeypatch, declared, found, tried):
    read = []
    monkeypatch.setattr(cut_trial, "Broker", lambda *_: SimpleNamespace(topic=lambda _: found))
    monkeypatch.setattr(cut_trial, "load_logic", lambda _: "logic")
    monkeypatch.setattr(cut_trial.kafka, "read_range", lambda *asked: asked[3:5])
    monkeypatch.setattr(cut_trial.kafka, "as_records", lambda rows: rows)
    monkeypatch.setattr(cut_trial, "compare", lambda records, *_: read.append(records))
    cut_trial.check(None, SimpleNamespace(), replace(PIPELINE, **declared))
    assert read == ([] if tried is None else [tried])
