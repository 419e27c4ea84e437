"""What the broker says of a topic to a user who lacks a right: neither "absent" nor "deleted"."""

from __future__ import annotations

import uuid
from contextlib import contextmanager

import pytest
from kafka import errors

from rewind.core.errors import DeniedError, RetryError
from rewind.core.settings import from_environment
from rewind.runtime.kafka import broker as module
from rewind.runtime.kafka.broker import Broker, topic_id_text

ID = uuid.UUID(int=7)
THERE = {"name": "out-g1", "error_code": 0, "topic_id": ID, "partitions": [{"partition_index": 0}]}


class Admin:
    """Answers of a broker, one a look at the topic, the last one again and again."""

    def __init__(self, *answers, deletion=None):
        self.answers, self.deletion, self.deleted = list(answers), deletion, []

    def describe_topics(self, topics):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [answer] if isinstance(answer, dict) else [{"name": topics[0], "error_code": answer.errno}]

    def delete_topics(self, ids):
        self.deleted += ids
        if self.deletion is not None:
            raise self.deletion("no")


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A broker with drawn answers: `asked(THERE, errors.UnknownTopicOrPartitionError)`."""
    made = Broker(from_environment({"REWIND_HOME": str(tmp_path), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"}))

    def answering(*answers, deletion=None):
        admin = Admin(*answers, deletion=deletion)

        @contextmanager
        def opened():
            with made._reaching():
                yield admin

        monkeypatch.setattr(made, "_admin", opened)
        return made, admin

    return answering


GONE, HIDDEN = errors.UnknownTopicOrPartitionError, errors.TopicAuthorizationFailedError


def test_f16_what_is_not_shown_is_not_absent(asked):
    broker, admin = asked(HIDDEN)
    for look in (lambda: broker.topic("out-g1"), lambda: broker.delete_topic("out-g1", topic_id_text(ID))):
        with pytest.raises(DeniedError) as raised:
            look()
        assert str(raised.value) == (
            "topic: the broker denies Describe on out-g1 to this user. Grant Describe on topic out-g1, then try again: "
            "kafka-acls --bootstrap-server 127.0.0.1:1 --add --allow-principal User:<its name> "
            "--operation Describe --topic out-g1"
        )
    assert admin.deleted == []


def test_what_the_broker_says_is_gone_is_absent(asked):
    broker, admin = asked(GONE)
    assert broker.topic("out-g1") is None
    assert broker.delete_topic("out-g1", topic_id_text(ID)) is False
    assert admin.deleted == []


def test_a_missing_right_to_delete_is_told(asked):
    broker, _ = asked(THERE, deletion=HIDDEN)
    with pytest.raises(DeniedError, match="the broker denies Delete on out-g1 to this user"):
        broker.delete_topic("out-g1", topic_id_text(ID))


def test_a_topic_that_somebody_else_deletes_is_absent_once_it_is_gone(asked):
    broker, _ = asked(THERE, THERE, GONE, deletion=errors.UnknownTopicIdError)
    assert broker.delete_topic("out-g1", topic_id_text(ID)) is False


def test_a_topic_of_an_unknown_id_that_stays_is_neither_deleted_nor_absent(asked):
    broker, _ = asked(THERE, deletion=errors.UnknownTopicIdError)
    with pytest.raises(RetryError, match="topic out-g1 is still there"):
        broker.delete_topic("out-g1", topic_id_text(ID), timeout=0)


@pytest.mark.parametrize("error", [errors.LeaderNotAvailableError, errors.InvalidTopicError])
def test_any_other_answer_is_no_answer(asked, error):
    broker, _ = asked(error)
    with pytest.raises(RetryError, match=f"{error.__name__} .*topic out-g1 was not described"):
        broker.topic("out-g1")
    assert module.errors.for_code(error.errno) is error
