"""One contract for every broker: what the fake promises, the real one keeps."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Topic, held_back
from rewind.core.offsets import OffsetRange as R
from rewind.runtime.kafka import broker as real
from tests.support.fakes import FakeBroker
from tests.support.real_broker import COMPACTED, RealBroker
from tests.support.signatures import public

_numbers = itertools.count(1)


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


def test_a_topic_is_created_with_the_replicas_of_another(kafka, name):
    """A topic that asks for two replicas in step, and has one, takes no record."""
    assert kafka.topic(kafka.make(name).name).replicas == 1
    with pytest.raises(RetryError, match="replication"):
        kafka.create_topic(f"{name}-made", replace(LIKE, replicas=3), 2, "delete")
    assert kafka.topic(f"{name}-made") is None
    kafka.create_topic(f"{name}-made", replace(LIKE, replicas=1), 2, "delete")
    assert kafka.topic(f"{name}-made").replicas == 1


def test_creating_again_changes_nothing_and_gives_the_same_id(kafka, name):
    first = kafka.create_topic(name, LIKE, 2, "delete")
    assert kafka.create_topic(name, LIKE, 5, "compact") == first
    assert (len(kafka.topic(name).latest), kafka.topic(name).config["cleanup.policy"]) == (2, "delete")


def test_where_nobody_is_denied_anything_all_rights_are_there_and_nothing_is_made(kafka, name):
    kafka.make(name)
    every = ("Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs")
    kafka.check_rights({name: every, f"{name}-none": ("Read",)}, [f"{name}-new", name, f"{name}-none"])
    kafka.check_group(f"{name}-group", name)
    kafka.check_group(f"{name}-group")
    assert kafka.group_state(f"{name}-group") is None
    assert kafka.topic(f"{name}-new") is None
    assert kafka.topic(f"{name}-none") is None


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


# --- transactions, and clocks


KEPT = {"retention.ms": "-1"}
"""No retention takes away what tests date long ago."""


def keyed(count, at=1_757_000_000_000):
    return [(b"k", at)] * count


def ends(kafka, name):
    found = kafka.topic(name)
    return found.latest, found.end()


def test_an_open_transaction_holds_back_all_that_comes_after_it(kafka, name):
    """Case P08."""
    kafka.make(name, 2, **KEPT)
    kafka.append(name, 0, keyed(10))
    hangs = kafka.transaction()
    hangs.append(name, 0, keyed(5))
    kafka.append(name, 0, keyed(100))
    kafka.append(name, 1, keyed(3))

    found = kafka.topic(name)
    assert (found.latest, found.end(), found.held()) == ({0: 10, 1: 3}, {0: 115, 1: 3}, {0: R(10, 115)})
    assert held_back(found.held()) == [
        "partition 0 is held back by an open transaction: readable to 10, written to 115"
    ]
    assert len(kafka.read_all(name)) == 13
    hangs.commit()
    # The marker that ends it takes an offset.
    assert ends(kafka, name) == ({0: 116, 1: 3}, {0: 116, 1: 3})
    assert len(kafka.read_all(name)) == 118


def test_what_reads_uncommitted_records_waits_for_no_transaction(kafka, name):
    kafka.make(name, **KEPT)
    kafka.append(name, 0, keyed(2))
    kafka.transaction().append(name, 0, keyed(5))
    assert ends(kafka, name) == ({0: 2}, {0: 7})
    assert ends(kafka.uncommitted(), name) == ({0: 7}, {0: 7})
    assert (len(kafka.read_all(name)), len(kafka.uncommitted().read_all(name))) == (2, 7)


def test_a_transaction_that_is_taken_back_leaves_offsets_without_records(kafka, name):
    kafka.make(name, **KEPT)
    first, second = kafka.transaction(), kafka.transaction()
    first.append(name, 0, keyed(3))
    second.append(name, 0, keyed(2))
    kafka.append(name, 0, keyed(1))
    first.abort()
    assert ends(kafka, name) == ({0: 3}, {0: 7}), "the second is still open"
    second.commit()
    assert ends(kafka, name) == ({0: 8}, {0: 8})
    assert [record.offset for record in kafka.read_all(name)] == [3, 4, 5]


def test_times_are_the_producer_s_in_whatever_order(kafka, name):
    kafka.make(name, 1, **KEPT, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    times = [1_757_000_000_005, 1_757_000_000_001, 0, 4_102_444_800_000, 4_102_444_800_000]
    kafka.append(name, 0, [(b"k", at) for at in times])
    assert [(record.timestamp, record.timestamp_type) for record in kafka.read_all(name)] == [(at, 0) for at in times]


def test_times_are_the_broker_s_where_the_topic_says_so(kafka, name):
    kafka.make(name, 1, **{"message.timestamp.type": "LogAppendTime"})
    for at in (5, 3):
        kafka.append(name, 0, keyed(2, at))
    found = kafka.read_all(name)
    times = [record.timestamp for record in found]
    assert (times, {record.timestamp_type for record in found}) == (sorted(times), {1})
    assert times[0] > 1_700_000_000_000


def test_the_cleaner_leaves_the_newest_of_each_key_and_all_that_an_open_transaction_holds_back(kafka, name):
    kafka.make(name, 1, **COMPACTED)
    begun = 1_757_000_000_000
    for number, key in enumerate((b"a", b"b", b"a", b"c")):
        kafka.append(name, 0, [(key, begun + 1_000 * number)])
    hangs = kafka.transaction()
    hangs.append(name, 0, [(b"a", begun + 10_000)])
    kafka.append(name, 0, [(b"b", begun + 20_000)])
    kafka.clean(name)
    assert [(record.offset, record.key) for record in kafka.read_all(name)] == [(1, b"b"), (2, b"a"), (3, b"c")]
    assert ends(kafka, name) == ({0: 4}, {0: 6})
    hangs.commit()
    assert ends(kafka, name) == ({0: 7}, {0: 7})


# --- the fake has no more and no less


def test_the_fake_has_the_public_methods_of_the_real_one():
    fake = public(FakeBroker)
    owners = {name: parameters for name, parameters in public(RealBroker).items() if name in fake}
    assert owners.keys() == {"make", "member", "append", "transaction", "clean", "uncommitted"}
    assert {name: fake.pop(name) for name in owners} == owners
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
