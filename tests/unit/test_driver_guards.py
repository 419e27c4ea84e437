"""What a driver asks before it writes, and what it records: without a lease nothing, and nothing of another's batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rewind.core.errors import IntegrityError, LeaseLostError, RefusedError
from rewind.core.model import Batch
from rewind.registry import leases, progress
from rewind.registry.database import now, writing
from rewind.runtime.drivers import bundle
from rewind.steps.feed import feeding
from rewind.steps.streaming import driver as module
from rewind.steps.streaming import stream
from rewind.steps.streaming.driver import Drained, Driver, Source
from tests.support.fakes import PIPELINE, TOPIC, FakeBroker, generation, installation, topic

OWNER = "visits_converter-g1"
BATCH = Batch(4, {0: 5}, {0: 9}, 4, now())


class Guard:
    """A guard that may have lost its token."""

    def __init__(self, token: int) -> None:
        self.token, self.lost, self.asked = token, False, 0

    def check(self) -> None:
        self.asked += 1
        if self.lost:
            raise LeaseLostError("lost")


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path)


@pytest.fixture
def broker(monkeypatch):
    made = FakeBroker()
    made.make(TOPIC, 1)
    monkeypatch.setattr(module, "Broker", lambda _: made)
    monkeypatch.setattr(stream, "Broker", lambda *_: made)
    return made


@pytest.fixture
def driver(settings, broker, monkeypatch):
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(module, "_Listener", lambda *_: None)
    with writing(settings.registry_url) as connection:
        token = leases.take(connection, OWNER, leases.this_driver())
    spark = SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))
    return Driver(settings, Source(OWNER, TOPIC, "/checkpoint", group=OWNER), Guard(token), spark)


def recorded(settings):
    with writing(settings.registry_url) as connection:
        return progress.newest(connection, OWNER)


def test_no_batch_passes_the_gate_without_the_lease_or_while_draining(driver):
    driver.gate()
    assert driver._guard.asked == 1
    driver._guard.lost = True
    with pytest.raises(LeaseLostError):
        driver.gate()
    driver._draining = True
    with pytest.raises(Drained):
        driver.gate()


def test_a_batch_is_recorded_and_its_end_committed_to_the_group(settings, broker, driver):
    driver._pending.append(BATCH)
    driver._record()
    assert recorded(settings).end == {0: 9}
    assert broker.group_offsets(OWNER, TOPIC) == {0: 9}
    assert driver._pending == []


def test_a_driver_that_lost_its_token_records_and_commits_nothing(settings, broker, driver):
    with writing(settings.registry_url) as connection:
        leases.give_back(connection, OWNER, driver._guard.token)
        leases.take(connection, OWNER, leases.this_driver())
    driver._pending.append(BATCH)
    with pytest.raises(LeaseLostError):
        driver._record()
    assert recorded(settings) is None
    assert broker.group_offsets(OWNER, TOPIC) == {}


def test_a_batch_that_a_dead_driver_committed_is_recorded_by_the_next(settings, broker, driver, monkeypatch):
    driver._guard.check_token = lambda: None
    answers = {
        "last_committed": 4,
        "start_offsets": {0: 5},
        "end_offsets": {0: 9},
        "logged": module.checkpoint.Logged("", "", 0),
        "late_watermark": 0,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(module.checkpoint, name, lambda *_, answer=answer: answer)
    driver.run(lambda: SimpleNamespace(awaitTermination=lambda _: True))
    assert (recorded(settings).batch, recorded(settings).rows) == (4, 4)
    assert broker.group_offsets(OWNER, TOPIC) == {0: 9}


# --- before a stream begins


def test_a_stream_of_a_topic_that_is_gone_or_was_made_anew_is_refused(settings, broker):
    with pytest.raises(RefusedError, match=r"source.topic: 'visits' was recreated \(id AAAAAAAAAAAAAAAAAAAAAQ, now "):
        stream.checked_topic(settings, PIPELINE, generation())
    del broker.described[TOPIC]
    with pytest.raises(RefusedError, match=r"source.topic: 'visits' is not on the broker"):
        stream.checked_topic(settings, PIPELINE, generation())


def test_where_a_stream_begins(monkeypatch):
    began: dict[str, dict[int, int]] = {}
    monkeypatch.setattr(stream.checkpoint, "first_offsets", lambda *_: began.get("at"))
    monkeypatch.setattr(stream.checkpoint, "last_committed", lambda *_: 3)
    source = topic({0: 1, 1: 2, 2: 7}, {0: 9, 1: 9, 2: 9})
    made = generation(handoff={0: 5, 1: 6})
    assert stream.first_offsets(None, "/checkpoint", made, source) == {0: 5, 1: 6, 2: 7}
    began["at"] = {0: 5, 1: 6, 2: 8}
    assert stream.first_offsets(None, "/checkpoint", made, source) == {0: 5, 1: 6, 2: 7}
    began["at"] = {0: 5, 1: 4}
    with pytest.raises(
        IntegrityError, match=r"is not empty \(last batch 3\): began, asked per partition: {1: \(4, 6\)}"
    ):
        stream.first_offsets(None, "/checkpoint", made, source)
    with pytest.raises(RefusedError, match="handoff: visits_converter-g1 has none yet"):
        stream.first_offsets(None, "/checkpoint", generation(handoff=None), source)


@pytest.fixture
def deployed(settings, monkeypatch):
    """A generation of a pipeline with state, whose stream is about to begin."""
    made = generation(frozen={"config": {**PIPELINE.frozen(), "stateful": True}})
    monkeypatch.setattr(stream.generations, "read", lambda *_: made)
    monkeypatch.setattr(stream, "load_logic", lambda _: None)
    monkeypatch.setattr(stream.supervise, "frozen_bundle", lambda *_: bundle.Bundle(settings.home / "bundle", "b1", {}))
    monkeypatch.setattr(stream, "checked_topic", lambda *_: topic({0: 0}, {0: 1}))
    monkeypatch.setattr(stream, "session_of", lambda *_: None)
    monkeypatch.setattr(stream, "first_offsets", lambda *_: pytest.fail("it began"))
    return made


def test_a_stream_whose_code_is_not_its_bundle_s_takes_no_lease(settings, deployed):
    with pytest.raises(IntegrityError, match="not loaded from the bundle"):
        stream.run(settings, deployed.job_id)
    with writing(settings.registry_url) as connection:
        assert leases.read(connection, deployed.job_id) is None


def test_a_stream_checks_that_its_history_is_behind_it_before_it_reads_kafka(settings, deployed, monkeypatch):
    def refuse(*_):
        raise RefusedError("handoff", "read 2 of 3", "Wait")

    monkeypatch.setattr(stream.bundle, "check_origin", lambda *_: None)
    monkeypatch.setattr(feeding, "check_swap", refuse)
    with pytest.raises(RefusedError, match="handoff: read 2 of 3"):
        stream.run(settings, deployed.job_id)
