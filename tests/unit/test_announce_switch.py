"""Announcing a switch, and resolving the pointer."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, select, update

import rewind
from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import Pipeline
from rewind.core.settings import from_environment
from rewind.registry import database, generations, schema
from rewind.runtime import announce
from rewind.views import pointer
from tests.support import fakes

PIPELINE = Pipeline("visits_converter", "visits", "a STRING", "visits_converted")
MOVED = datetime.fromisoformat("2025-09-04T12:00")


class FakeBroker:
    """Topics with ends that grow with each look, as those of a running job do."""

    def __init__(self, fails=0):
        self.created, self.sent, self.fails, self.looks = [], [], fails, 0

    def topic(self, name):
        self.looks += 1
        return None if name == "gone" else Topic(name, "id", {0: 0}, {0: 100 + self.looks, 1: 5})

    def create_control_topic(self, name):
        self.created.append(name)

    def send(self, topic, key, value):
        if self.fails:
            self.fails -= 1
            raise RetryError("away")
        self.sent.append((topic, key, json.loads(value)))


@pytest.fixture
def settings(tmp_path):
    made = from_environment({"REWIND_HOME": str(tmp_path), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
    database.upgrade(made.registry_url)
    with database.writing(made.registry_url) as connection:
        for number in (1, 2, 3):
            _generation(connection, number)
        _progress(connection, "visits_converter-g1", {"0": 70, "1": 30})
        generations.set_first(connection, "visits_converter-g1")
        connection.execute(update(schema.pointers).values(moved_at=MOVED))
    return made


def _generation(connection, number):
    job = f"visits_converter-g{number}"
    made = Generation(
        job_id=job,
        pipeline="visits_converter",
        state=lifecycle.CANDIDATE if number == 1 else lifecycle.STANDBY,
        topic_id="topic-id",
        bundle="b",
        frozen={"config": PIPELINE.frozen()},
        start={0: 0, 1: 0},
        handoff={0: 10 * number, 1: 5},
        output_topic=f"visits_converted-g{number}",
        dead_letter_topic=f"visits_converted-g{number}-dead",
    )
    generations.create(connection, made, None)


def _progress(connection, owner, end):
    values = {"owner": owner, "batch": 0, "token": 1, "start": {}, "end": end, "rows": 1, "at": MOVED}
    connection.execute(insert(schema.progress).values(**values))


def _prepare(settings, epoch, old, new):
    with database.writing(settings.registry_url) as connection:
        announce.prepare(connection, "visits_converter", epoch, old, new)


def _body(settings, epoch):
    with database.writing(settings.registry_url) as connection:
        return announce.body(connection, "visits_converter", epoch)


def _published_at(settings, epoch):
    with database.writing(settings.registry_url) as connection:
        table = schema.announcements
        return connection.execute(select(table.c.published_at).where(table.c.epoch == epoch)).scalar_one()


def test_prepared_body_names_both_jobs_and_their_source_positions(settings):
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    body = _body(settings, 2)
    assert (body["pipeline"], body["epoch"]) == ("visits_converter", 2)
    assert (body["job_id"], body["previous_job_id"]) == ("visits_converter-g2", "visits_converter-g1")
    assert body["jobs"]["visits_converter-g1"]["source_position"] == {"visits": {"0": 70, "1": 30}}
    assert body["jobs"]["visits_converter-g2"] == {
        "source_topic": "visits",
        "source_topic_id": "topic-id",
        "source_position": {"visits": {"0": 20, "1": 5}},
        "output_topic": "visits_converted-g2",
        "dead_letter_topic": "visits_converted-g2-dead",
    }


def test_preparing_again_keeps_what_was_prepared_first(settings):
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    first = _body(settings, 2)
    with database.writing(settings.registry_url) as connection:
        _progress(connection, "visits_converter-g2", {"0": 99})
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    assert _body(settings, 2) == first


def test_a_first_generation_has_no_previous_job(settings):
    _prepare(settings, 1, None, "visits_converter-g1")
    body = _body(settings, 1)
    assert body["previous_job_id"] is None
    assert list(body["jobs"]) == ["visits_converter-g1"]


def test_a_prepared_switch_that_is_rolled_back_announces_nothing(settings):
    connection = database.engine(settings.registry_url).connect()
    announce.prepare(connection, "visits_converter", 2, None, "visits_converter-g2")
    connection.close()
    assert _body(settings, 2) is None


def test_publish_sends_one_record_with_the_ends_of_the_outputs(settings):
    broker = FakeBroker()
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    announce.publish(settings, "visits_converter", 2, broker)
    announce.publish(settings, "visits_converter", 2, broker)
    assert broker.created == ["rewind-control"]
    ((topic, key, value),) = broker.sent
    assert (topic, key) == ("rewind-control", b"visits_converter")
    assert value["jobs"]["visits_converter-g1"]["output_position"] == {
        "visits_converted-g1": {"0": 101, "1": 5},
        "visits_converted-g1-dead": {"0": 102, "1": 5},
    }
    assert value == _body(settings, 2)
    assert _published_at(settings, 2) is not None


def test_a_repeat_after_a_failed_send_tells_the_same(settings):
    broker = FakeBroker(fails=1)
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    with pytest.raises(RetryError):
        announce.publish(settings, "visits_converter", 2, broker)
    decided = _body(settings, 2)
    assert _published_at(settings, 2) is None
    announce.publish(settings, "visits_converter", 2, broker)
    assert [value for _, _, value in broker.sent] == [decided]


def test_an_overtaken_epoch_is_not_sent(settings):
    broker = FakeBroker()
    _prepare(settings, 2, "visits_converter-g1", "visits_converter-g2")
    _prepare(settings, 3, "visits_converter-g2", "visits_converter-g3")
    announce.publish(settings, "visits_converter", 3, broker)
    announce.publish(settings, "visits_converter", 2, broker)
    assert [value["epoch"] for _, _, value in broker.sent] == [3]
    assert _published_at(settings, 2) is not None


def test_what_was_not_prepared_cannot_be_published(settings):
    with pytest.raises(RefusedError, match="nothing is announced of visits_converter at epoch 9"):
        announce.publish(settings, "visits_converter", 9, FakeBroker())


def test_resolve_gives_the_live_job(settings):
    found = rewind.resolve("visits_converter", settings.registry_url)
    assert found == rewind.Resolved(
        pipeline="visits_converter",
        job_id="visits_converter-g1",
        epoch=1,
        output_topic="visits_converted-g1",
        dead_letter_topic="visits_converted-g1-dead",
        topic_id="topic-id",
        moved_at=MOVED.replace(tzinfo=UTC),
    )
    assert found.to_json()["moved_at"] == "2025-09-04T12:00:00.000Z"


def test_resolve_finds_the_registry_by_the_environment(settings, monkeypatch):
    monkeypatch.delenv("REWIND_REGISTRY_URL", raising=False)
    monkeypatch.setenv("REWIND_HOME", str(settings.home))
    assert rewind.resolve("visits_converter").job_id == "visits_converter-g1"


def test_resolve_refuses_an_unknown_pipeline_and_a_missing_registry(settings, tmp_path):
    with pytest.raises(RefusedError, match="'other' has no live job"):
        rewind.resolve("other", settings.registry_url)
    with pytest.raises(RefusedError, match="there is none at"):
        rewind.resolve("other", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(RefusedError, match="REWIND_REGISTRY_URL: is not set"):
        pointer.url_of({})


def test_importing_rewind_loads_nothing_but_the_standard_library(project):
    loaded = "{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names"
    # Without site-packages at all (-S): what is missing there would fail the import.
    run = [sys.executable, "-S", "-c", f"import rewind, sys; print(sorted({loaded}))"]
    environment = {"PYTHONPATH": str(project / "include")}
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() in ("['__main__', 'rewind']", "['rewind']")


def test_an_unknown_attribute_of_rewind_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rewind.nothing  # noqa: B018


def test_of_a_shared_output_the_record_names_what_resolve_names(settings):
    shared = replace(PIPELINE, name="counter", output_topic="counted", shared=True)
    with database.writing(settings.registry_url) as connection:
        for number, state in ((1, lifecycle.CANDIDATE), (2, lifecycle.STANDBY)):
            made = fakes.generation(shared, number, state=state)
            generations.create(connection, made, None)
        generations.set_first(connection, "counter-g1")
        announce.prepare(connection, "counter", 1, "counter-g2", "counter-g1")
    broker = FakeBroker()
    announce.publish(settings, "counter", 1, broker)
    ((_, _, told),) = broker.sent
    read = rewind.resolve("counter", settings.registry_url).output_topic
    assert read == "counted-shared"
    for number in (1, 2):
        job = told["jobs"][f"counter-g{number}"]
        assert job["output_topic"] == read
        assert sorted(job["output_position"]) == [f"counted-g{number}-dead", read]
