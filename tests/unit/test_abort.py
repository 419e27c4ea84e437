"""An abort beside a step that still makes things: nothing is left that nobody would delete."""

from __future__ import annotations

import pytest

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.registry import generations, manifest, rewinds
from rewind.registry.database import writing
from rewind.steps.generation import allocate
from rewind.steps.lifecycle import abort, spin_up
from tests.scenarios.machine import Crash, World
from tests.support.fakes import PIPELINE, FakeBroker, generation, plan

OLD, NEW = (f"{PIPELINE.name}-g{n}" for n in (1, 2))
SOURCE, OUT = "visits", f"{PIPELINE.output_topic}-g1"


@pytest.fixture
def world(tmp_path):
    """g1 is live, and a rewind that will make g2 is active."""
    made = World(tmp_path / "home", FakeBroker(), {})
    with made.patched():
        source = made.broker.make(SOURCE, 2)
        made.broker.make(OUT, 2)
        with writing(made.settings.registry_url) as connection:
            generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
            generations.set_first(connection, OLD)
            rewinds.open_rewind(connection, "rw-1", plan(topic_id=source.id))
        yield made


def state(world, job=NEW):
    with writing(world.settings.registry_url) as connection:
        found = rewinds.read(connection, "rw-1").state
        made = generations.find(connection, job)
        listed = {entry.name for entry in manifest.read(connection, job) if entry.state != manifest.DELETED}
    return found, made and made.state, listed


def left(world):
    return set(world.broker.described) - {SOURCE, OUT}, world.settings.generations.joinpath(NEW).exists()


def crashing(world, at, step):
    world.crash_at = at
    with pytest.raises(Crash):
        step()
    world.crash_at = ""


def test_no_step_begins_once_an_abort_has_begun(world):
    crashing(world, "before:bundle.freeze", lambda: spin_up.run(world.settings, "rw-1"))
    crashing(world, "after:generation.collected", lambda: abort.run(world.settings, "rw-1", PIPELINE.name, ""))
    with pytest.raises(RefusedError, match="rewind_id: rewind rw-1 is being aborted"):
        spin_up.run(world.settings, "rw-1")
    abort.run(world.settings, "rw-1", PIPELINE.name, "")
    assert state(world) == (lifecycle.ABORTED, lifecycle.COLLECTED, set())
    assert left(world) == (set(), False)


@pytest.mark.parametrize("before", ["name", "topic.create"])
def test_what_is_made_beside_an_abort_is_gone_again(world, monkeypatch, before):
    def aborted_first(call):
        def around(*arguments, **named):
            monkeypatch.undo()
            abort.run(world.settings, "rw-1", PIPELINE.name, "")
            return call(*arguments, **named)

        return around

    if before == "name":
        monkeypatch.setattr(allocate, "make", aborted_first(allocate.make))
    else:
        monkeypatch.setattr(world.broker, "create_topic", aborted_first(world.broker.create_topic))
    with pytest.raises(RefusedError, match=f"job_id: {NEW} was aborted while it was made"):
        spin_up.run(world.settings, "rw-1")
    assert state(world) == (lifecycle.ABORTED, lifecycle.COLLECTED, set())
    assert left(world) == (set(), False)
