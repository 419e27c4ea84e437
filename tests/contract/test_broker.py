"""One contract for every broker: what the fake promises, the real one keeps."""

from __future__ import annotations

import itertools
from contextlib import contextmanager

import pytest
from kafka import KafkaConsumer

from rewind.control import broker as real
from rewind.core.errors import RefusedError, RetryError
from rewind.core.world import Topic
from tests.support.fakes import FakeBroker
from tests.support.signatures import public

_numbers = itertools.count(1)


class RealBroker(real.Broker):
    """The real one, with what the owner of a topic and the member of a group do."""

    @contextmanager
    def member(self, group, topic):
        consumer = KafkaConsumer(group_id=group, **{**self._options, "enable_auto_commit": False})
        try:
            # One that joins before it has heard of the topic is assigned nothing.
            assert consumer.partitions_for_topic(topic)
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(200)
            yield
        finally:
            consumer.close()

    def make(self, name, partitions=1, **config):
        with self._admin() as admin:
            admin.create_topics({name: {"num_partitions": partitions, "configs": config}}, wait_for_metadata=True)
        return self.topic(name)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.integration)])
def kafka(request):
    """A broker: in memory, and on the wire."""
    return FakeBroker() if request.param == "fake" else RealBroker(request.getfixturevalue("settings"))


@pytest.fixture
def name():
    """A name that no other test of the session uses."""
    return f"contract-{next(_numbers)}"


LIKE = Topic("live", "id", {}, {}, {"max.message.bytes": "123456", "min.insync.replicas": "1", "retention.ms": "5"})


# --- describing


def test_an_unknown_topic_is_none(kafka, name):
    assert kafka.topic(name) is None
    assert name not in kafka.topics()


def test_a_topic_is_described_with_its_ends_and_settings(kafka, name):
    made = kafka.make(name, 3, **{"retention.ms": "86400000"})
    kafka.send(name, b"k", b"v")
    found = kafka.topic(name)

    assert (found.name, found.id, len(found.id)) == (name, made.id, 22)
    assert found.earliest == {0: 0, 1: 0, 2: 0}
    assert (sorted(found.latest), sum(found.latest.values())) == ([0, 1, 2], 1)
    assert (found.config["retention.ms"], found.config["cleanup.policy"]) == ("86400000", "delete")
    assert "max.message.bytes" in found.config, "settings that nobody set are told too"
    assert name in kafka.topics()


@pytest.mark.parametrize(("policy", "compacted"), [("delete", False), ("compact", True), ("compact,delete", True)])
def test_a_compacted_topic_is_known_as_such(kafka, name, policy, compacted):
    kafka.make(name, **{"cleanup.policy": policy})
    assert kafka.topic(name).compacted is compacted


# --- creating


def test_a_topic_is_created_with_the_limits_of_another(kafka, name):
    made = kafka.create_topic(name, LIKE, 2, "compact")
    found = kafka.topic(name)

    assert (found.id, found.latest) == (made, {0: 0, 1: 0})
    assert found.config["cleanup.policy"] == "compact"
    assert found.config["max.message.bytes"] == "123456"
    assert found.config["retention.ms"] == "-1", "time takes no record of an output"


def test_creating_again_changes_nothing_and_gives_the_same_id(kafka, name):
    first = kafka.create_topic(name, LIKE, 2, "delete")
    assert kafka.create_topic(name, LIKE, 5, "compact") == first
    assert (len(kafka.topic(name).latest), kafka.topic(name).config["cleanup.policy"]) == (2, "delete")


def test_a_control_topic_is_one_compacted_partition(kafka, name):
    for _ in range(2):
        kafka.create_control_topic(name)
    assert (kafka.topic(name).latest, kafka.topic(name).compacted) == ({0: 0}, True)


# --- deleting


def test_a_topic_is_deleted_by_its_id_once(kafka, name):
    made = kafka.make(name)
    assert kafka.delete_topic(name, made.id) is True
    assert kafka.topic(name) is None
    assert kafka.delete_topic(name, made.id) is False


def test_a_topic_made_anew_under_the_same_name_is_not_deleted(kafka, name):
    old = kafka.make(name)
    kafka.delete_topic(name, old.id)
    new = kafka.make(name)

    assert new.id != old.id
    with pytest.raises(RefusedError) as raised:
        kafka.delete_topic(name, old.id)
    assert f"{name} has id {new.id}, not {old.id}" in str(raised.value)
    assert kafka.topic(name).id == new.id


# --- consumer groups


def test_a_group_nobody_knows_has_no_position(kafka, name):
    assert kafka.group_offsets(f"{name}-nobody", name) == {}
    assert kafka.delete_group(f"{name}-nobody") is False


def test_positions_are_committed_partition_by_partition(kafka, name):
    kafka.make(name, 2)
    kafka.commit(f"{name}-g1", name, {0: 5})
    kafka.commit(f"{name}-g1", name, {0: 7, 1: 0})
    kafka.commit(f"{name}-g2", name, {0: 1})

    assert kafka.group_offsets(f"{name}-g1", name) == {0: 7, 1: 0}
    assert kafka.group_offsets(f"{name}-g2", name) == {0: 1}


def test_positions_of_other_topics_are_not_told(kafka, name):
    kafka.make(name)
    kafka.make(f"{name}-other")
    kafka.commit(f"{name}-g1", f"{name}-other", {0: 5})
    assert kafka.group_offsets(f"{name}-g1", name) == {}
    assert kafka.group_offsets(f"{name}-g1", f"{name}-other") == {0: 5}


def test_the_state_of_a_group_tells_whether_it_has_members(kafka, name):
    kafka.make(name)
    kafka.send(name, b"k", b"v")
    assert kafka.group_state(f"{name}-g1") is None
    kafka.commit(f"{name}-g1", name, {0: 1})
    assert kafka.group_state(f"{name}-g1") == "Empty"
    with kafka.member(f"{name}-g1", name):
        assert kafka.group_state(f"{name}-g1") == "Stable"


def test_a_group_is_deleted_once(kafka, name):
    kafka.make(name)
    kafka.commit(f"{name}-g1", name, {0: 5})
    assert kafka.delete_group(f"{name}-g1") is True
    assert kafka.group_offsets(f"{name}-g1", name) == {}
    assert kafka.delete_group(f"{name}-g1") is False


def test_a_group_with_members_is_not_deleted(kafka, name):
    kafka.make(name)
    kafka.commit(f"{name}-g1", name, {0: 5})
    with kafka.member(f"{name}-g1", name), pytest.raises(RetryError, match="NonEmptyGroupError"):
        kafka.delete_group(f"{name}-g1")
    assert kafka.delete_group(f"{name}-g1") is True


def test_a_position_in_a_partition_that_is_not_there_is_not_committed(kafka, name):
    kafka.make(name)
    with pytest.raises(RetryError, match=rf"group {name}-g1: .*\{{7: 'UnknownTopicOrPartitionError'\}}"):
        kafka.commit(f"{name}-g1", name, {7: 5})


# --- records


def test_records_are_read_in_order_with_keys_values_and_tombstones(kafka, name):
    kafka.make(name)
    for key, value in ((b"a", b"1"), (b"b", b""), (b"a", None)):
        kafka.send(name, key, value)

    assert [(r.offset, r.key, r.value) for r in kafka.read_all(name)] == [
        (0, b"a", b"1"),
        (1, b"b", b""),
        (2, b"a", None),
    ]
    assert kafka.topic(name).latest == {0: 3}


def test_records_of_a_topic_that_is_not_there_are_none(kafka, name):
    assert kafka.read_all(name) == []


def test_records_come_by_partition_and_offset(kafka, name):
    kafka.make(name, 3)
    for number in range(12):
        kafka.send(name, str(number).encode(), b"v")
    places = [(r.partition, r.offset) for r in kafka.read_all(name)]
    assert (len(places), places) == (12, sorted(places))


# --- the fake has no more and no less


def test_the_fake_has_the_public_methods_of_the_real_one():
    fake = public(FakeBroker)
    assert fake.pop("make")
    assert fake.pop("member")
    assert fake == public(real.Broker)


# --- only the real one


def test_a_broker_that_is_down_asks_for_a_retry_and_names_its_address(make_settings, monkeypatch):
    monkeypatch.setattr(real, "TIMEOUT_MILLISECONDS", 500)
    down = real.Broker(make_settings("127.0.0.1:1"))
    for ask in (
        down.topics,
        lambda: down.topic("t"),
        lambda: down.create_control_topic("t"),
        lambda: down.delete_group("g"),
    ):
        with pytest.raises(RetryError, match=r"Kafka at 127\.0\.0\.1:1: .*make status"):
            ask()


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("{}", 0o640, "can be read by others"),
        ("{}", 0o604, "can be read by others"),
        ("{", 0o600, "is not JSON"),
        ('{"bootstrap_servers": "x", "sasl_mechanism": "PLAIN"}', 0o600, "['bootstrap_servers'] may not be set"),
        ("[]", 0o600, "is no JSON object"),
        ('"x"', 0o600, "is no JSON object"),
    ],
)
def test_an_options_file_is_private_json_of_allowed_options(make_settings, tmp_path, text, mode, problem):
    path = tmp_path / "options.json"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(RefusedError) as raised:
        real.Broker(make_settings(REWIND_KAFKA_OPTIONS_FILE=str(path)))
    assert raised.value.field == "REWIND_KAFKA_OPTIONS_FILE"
    assert problem in raised.value.problem


def test_an_options_file_that_is_missing_is_named(make_settings, tmp_path):
    with pytest.raises(RefusedError, match="cannot be read"):
        real.Broker(make_settings(REWIND_KAFKA_OPTIONS_FILE=str(tmp_path / "none")))


def test_allowed_options_reach_every_client(make_settings, tmp_path):
    path = tmp_path / "options.json"
    path.write_text('{"security_protocol": "SSL", "ssl_cafile": "/ca"}')
    path.chmod(0o600)
    assert real.client_options(make_settings("a:1,b:2", REWIND_KAFKA_OPTIONS_FILE=str(path))) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SSL",
        "ssl_cafile": "/ca",
    }
