"""The Kafka broker, through kafka-python: topics by name and id, positions, consumer groups.

Deletes go by topic id, so that a topic recreated under the same name is never hit.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    KafkaError,
    NotCoordinatorError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer.offsets import IsolationLevel
from kafka.structs import OffsetAndMetadata

from rewind.control import secret_file
from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.offsets import Vector, higher
from rewind.core.settings import Settings
from rewind.core.world import Topic

TIMEOUT_MILLISECONDS = 15_000
ALLOWED_OPTIONS = {
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
}
"""Client options that an options file may set, by their kafka-python names."""
COPIED_SETTINGS = ("max.message.bytes", "min.insync.replicas")
"""Topic settings that a new output takes from live's, beside its partition count and clean-up."""


def client_options(settings: Settings) -> dict[str, Any]:
    """Return the options of every Kafka client of an installation.

    Raises:
        RefusedError: The options file is readable by others, no JSON object, or sets what is not allowed.
    """
    options: dict[str, Any] = {}
    if settings.kafka_options_file is not None:
        options = _read_options(settings)
    return {"bootstrap_servers": settings.bootstrap.split(","), **options}


def _read_options(settings: Settings) -> dict[str, Any]:
    path, field = settings.kafka_options_file, "REWIND_KAFKA_OPTIONS_FILE"
    assert path is not None
    try:
        options = json.loads(secret_file.read(path, field))
    except ValueError:
        raise RefusedError(field, f"{path} is not JSON", "Write one JSON object of client options") from None
    if not isinstance(options, dict):
        raise RefusedError(field, f"{path} is no JSON object", "Write one JSON object of client options")
    unknown = sorted(set(options) - ALLOWED_OPTIONS)
    if unknown:
        raise RefusedError(field, f"{unknown} may not be set", f"Allowed are {sorted(ALLOWED_OPTIONS)}")
    return dict(options)


class Broker:
    """One cluster. Clients are opened a call and closed after it, so that a value of this can live for long."""

    def __init__(self, settings: Settings, isolation: str = "read_committed") -> None:
        """Keep the address; nothing is connected yet."""
        self._options = client_options(settings)
        self._address = settings.bootstrap
        self._isolation = isolation

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        with self._admin() as admin:
            return sorted(admin.list_topics())

    def topic(self, name: str) -> Topic | None:
        """Return the topic, or None when the broker says that there is none of that name.

        Raises:
            DeniedError: The broker does not show it to this user.
        """
        with self._admin() as admin:
            described = _describe(admin, name)
            if described is None:
                return None
            partitions = sorted(p["partition_index"] for p in described["partitions"])
            topic_id, config = topic_id_text(described["topic_id"]), _config(admin, name)
            earliest = self._offsets(admin, name, partitions, OffsetSpec.EARLIEST, self._isolation)
            # Written first: what is appended between the two looks must not pass for an open transaction.
            written = self._offsets(admin, name, partitions, OffsetSpec.LATEST, "read_uncommitted")
            latest = self._offsets(admin, name, partitions, OffsetSpec.LATEST, self._isolation)
            return Topic(name, topic_id, earliest, latest, config, higher(written, latest))

    def create_topic(self, name: str, like: Topic, partitions: int, cleanup: str) -> str:
        """Create a topic with the size limits of another and return its id; harmless when it exists.

        Args:
            name: Its name.
            like: Whose settings in `COPIED_SETTINGS` it takes.
            partitions: Its partition count.
            cleanup: Its `cleanup.policy`.
        """
        copied = {key: like.config[key] for key in COPIED_SETTINGS if key in like.config}
        # Output and dead letters are compared from their first record on: time must not take it away.
        configs = {"cleanup.policy": cleanup, "retention.ms": "-1", **copied}
        with self._admin() as admin:
            try:
                admin.create_topics({name: {"num_partitions": partitions, "configs": configs}}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                admin.wait_for_topics([name])
            described = _describe(admin, name)
            assert described is not None
            return topic_id_text(described["topic_id"])

    def create_control_topic(self, name: str) -> None:
        """Create a compacted topic of one partition; harmless when it exists."""
        with self._admin() as admin:
            try:
                spec = {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}}
                admin.create_topics({name: spec}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                return

    def delete_topic(self, name: str, topic_id: str, timeout: float = 60) -> bool:
        """Delete the topic of an id, wait until it is gone, and return whether there was one.

        Raises:
            RefusedError: The name now belongs to another topic.
            DeniedError: This user may not see it, or not delete it.
            RetryError: It is still there after `timeout` seconds.
        """
        with self._admin() as admin:
            described = _describe(admin, name)
            if described is None:
                return False
            found = topic_id_text(described["topic_id"])
            if found != topic_id:
                raise RefusedError("topic", f"{name} has id {found}, not {topic_id}", "It is another's topic now: look")
            try:
                admin.delete_topics([uuid.UUID(bytes=_id_bytes(topic_id))])
            except (UnknownTopicIdError, UnknownTopicOrPartitionError):
                # Somebody was faster: that alone does not say that it is gone.
                _wait_gone(admin, name, topic_id, timeout)
                return False
            except TopicAuthorizationFailedError as error:
                raise _denied(name, "Delete") from error
            _wait_gone(admin, name, topic_id, timeout)
            return True

    def group_offsets(self, group: str, topic: str) -> Vector:
        """Return the committed positions of a consumer group on a topic; empty when there are none."""
        with self._admin() as admin:
            try:
                found = _coordinated(lambda: admin.list_group_offsets(group))[group]
            except (GroupIdNotFoundError, KeyError):
                return {}
            return {tp.partition: meta.offset for tp, meta in found.items() if tp.topic == topic and meta.offset >= 0}

    def group_state(self, group: str) -> str | None:
        """Return the state of a consumer group as Kafka names it (`Stable`, `Empty`...), or None when there is none."""
        with self._admin() as admin:
            found = _coordinated(admin.list_groups)
        return next((str(g["group_state"]) for g in found if g["group_id"] == group), None)

    def commit(self, group: str, topic: str, vector: Mapping[int, int]) -> None:
        """Commit positions for a group without joining it, as ordinary lag tools read them."""
        offsets = {TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in vector.items()}
        with self._admin() as admin:
            answers = _coordinated(lambda: admin.alter_group_offsets(group, offsets))
            refused = {tp.partition: error.__name__ for tp, error in answers.items() if error.errno != 0}
        if refused:
            raise RetryError(f"group {group}: the broker refused the positions of {refused}")

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group and return whether there was one.

        Raises:
            RetryError: It has members, or the broker does not delete it.
        """
        with self._admin() as admin:
            return bool(_coordinated(lambda: _delete_group(admin, group)))

    def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Send one record and wait until it is stored.

        Raises:
            RetryError: The broker did not store it in time.
        """
        with self._reaching():
            producer = KafkaProducer(**self._options, acks="all")
            try:
                producer.send(topic, key=key, value=value).get(timeout=30)
            finally:
                producer.close()

    def read_all(self, topic: str) -> list[Any]:
        """Return all records of a small topic, such as the control topic, in order of partition and offset."""
        found = self.topic(topic)
        if found is None:
            return []
        with self._reaching():
            consumer = KafkaConsumer(**self._options, enable_auto_commit=False, isolation_level=self._isolation)
            try:
                return _drain(consumer, topic, found.latest)
            finally:
                consumer.close()

    def _offsets(self, admin: Any, name: str, partitions: list[int], which: Any, isolation: str) -> Vector:
        level = IsolationLevel[isolation.upper()]
        found = admin.list_partition_offsets(
            {TopicPartition(name, p): which for p in partitions}, isolation_level=level
        )
        return {tp.partition: entry.offset for tp, entry in sorted(found.items())}

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with self._reaching():
            admin = KafkaAdminClient(
                **self._options,
                request_timeout_ms=TIMEOUT_MILLISECONDS,
                bootstrap_timeout_ms=TIMEOUT_MILLISECONDS,
            )
            try:
                yield admin
            finally:
                admin.close()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (KafkaError, OSError) as error:
            cure = "is it up (`make status`), and is REWIND_KAFKA_BOOTSTRAP right?"
            raise RetryError(f"Kafka at {self._address}: {type(error).__name__} {error}; {cure}") from error


def _coordinated(call: Callable[[], Any], seconds: float = 15) -> Any:
    # The first group of a cluster makes the offsets topic, and the broker has no coordinator until it is there.
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _delete_group(admin: Any, group: str) -> bool:
    # The client answers with "OK" or the name of an error's class, and raises nothing.
    outcome = admin.delete_groups([group])[group]
    if outcome not in ("OK", GroupIdNotFoundError.__name__):
        raise getattr(errors, outcome, KafkaError)(f"group {group} could not be deleted")
    return bool(outcome == "OK")


def topic_id_text(value: Any) -> str:
    """Return a topic id as Kafka prints it: 22 characters of URL-safe base 64."""
    raw = value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(str(value)).bytes
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _describe(admin: Any, name: str) -> dict[str, Any] | None:
    """Return what the broker says of a topic, or None when it says that there is none.

    Raises:
        DeniedError: It does not show the topic to this user, which tells nothing of whether there is one.
    """
    found = [dict(each) for each in admin.describe_topics([name]) if each.get("name") == name]
    code = found[0].get("error_code", 0) if found else errors.UnknownError.errno
    if code == UnknownTopicOrPartitionError.errno:
        return None
    if code == TopicAuthorizationFailedError.errno:
        raise _denied(name, "Describe")
    if code:
        raise errors.for_code(code)(f"topic {name} was not described")
    return found[0]


def _denied(name: str, right: str) -> DeniedError:
    problem = f"the broker denies {right} on {name} to this user"
    return DeniedError("topic", problem, f"Grant {right} on topic {name}, then try again")


def _config(admin: Any, name: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    answer = admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
    entries = next(iter(answer.values()))[name]
    return {key: str(entry["value"]) for key, entry in entries.items() if entry.get("value") is not None}


def _wait_gone(admin: Any, name: str, topic_id: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while (described := _describe(admin, name)) is not None and topic_id_text(described["topic_id"]) == topic_id:
        if time.monotonic() > deadline:
            raise RetryError(f"topic {name} is still there {timeout:.0f} s after its deletion")
        time.sleep(0.1)


def _drain(consumer: Any, topic: str, latest: Vector) -> list[Any]:
    partitions = [TopicPartition(topic, p) for p in latest]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    records: list[Any] = []
    deadline = time.monotonic() + 30
    while any(consumer.position(tp) < latest[tp.partition] for tp in partitions):
        if time.monotonic() > deadline:
            raise RetryError(f"topic {topic} could not be read to its end in 30 s")
        records += [record for batch in consumer.poll(500).values() for record in batch]
    return sorted(records, key=lambda record: (record.partition, record.offset))
