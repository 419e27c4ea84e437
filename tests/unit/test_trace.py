"""The trace itself: what is done in a named point passes, and each kind of change outside of one is found."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from sqlalchemy import delete

from rewind.core import crash
from rewind.core.crash import side_effect
from rewind.registry import rewinds, schema
from rewind.registry.database import writing
from tests.support.fakes import installation
from tests.support.trace import Crash, Trace


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def traced(settings, monkeypatch):
    """A trace of a world that is a dict."""
    world = {}
    made = Trace(lambda: dict(world), settings.home)
    made.world = world
    monkeypatch.setattr(crash, "_reach", made.reach)
    return made


def forget_facts(settings):
    with writing(settings.registry_url) as connection:
        connection.execute(delete(schema.facts))


def asked(client, method):
    def ask(_):
        with pytest.raises(AttributeError):  # No client behind it: what counts is that it was asked.
            getattr(client, method)(object(), "name")

    return ask


def write_file(settings):
    (settings.data / "planted").write_text("x")


def make_folder(settings):
    (settings.data / "made").mkdir()
    (settings.data / "made").rmdir()


PLANTED = [
    (forget_facts, ["sql DELETE FROM facts"]),
    (asked(KafkaProducer, "send"), ["kafka KafkaProducer.send ('name',)"]),
    (asked(KafkaAdminClient, "delete_topics"), ["kafka KafkaAdminClient.delete_topics ('name',)"]),
    (asked(KafkaConsumer, "commit"), ["kafka KafkaConsumer.commit ('name',)"]),
    (write_file, ["call open {data}/planted"]),
    (make_folder, ["call os.mkdir {data}/made", "call os.rmdir {data}/made"]),
]


@pytest.mark.parametrize(("plant", "told"), PLANTED)
def test_a_change_counts_when_it_is_made_outside_of_a_point(settings, traced, plant, told):
    settings.data.mkdir(parents=True)
    with traced():
        with side_effect("point"):
            plant(settings)
        assert (traced.points, traced.unnamed) == (["point"], [])
        plant(settings)
    plant(settings)
    assert traced.unnamed == [f"{line.format(data=settings.data)} (after point)" for line in told]


def test_what_a_jvm_changed_between_two_points_shows_in_the_world(traced):
    with traced():
        with side_effect("first"):
            traced.world["topic visits"] = 4
        traced.world["topic visits"] = 5
        with side_effect("second"):
            pass
        traced.world["file part-0"] = 1
    assert traced.unnamed == ["topic visits (before second)", "file part-0 (at the end)"]


def test_an_attempt_is_book_keeping_and_nothing_else_of_a_rewind_is(settings, traced):
    with traced(), writing(settings.registry_url) as connection:
        rewinds.end_step(connection, "rw-1", "plan", rewinds.begin_step(connection, "rw-1", "plan"), "done", {})
        rewinds.fix(connection, "rw-1", "wave.0", {"version": 1})
    (line,) = traced.unnamed
    assert line.startswith("sql INSERT INTO facts ")


def test_a_crash_at_a_passing_of_a_point(monkeypatch):
    made = Trace(crash_at=("after:point", 2))
    monkeypatch.setattr(crash, "_reach", made.reach)
    with made():
        with side_effect("point"):
            pass
        with pytest.raises(Crash), side_effect("point"):
            pass
