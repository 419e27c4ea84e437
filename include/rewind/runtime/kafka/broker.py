"""The Kafka broker, through kafka-python: topics by name and id, positions, consumer groups.

Deletes go by topic id, so that a topic recreated under the same name is never hit.
"""

from __future__ import annotations

import base64
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
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

from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.model import Topic
from rewind.core.offsets import Vector, higher
from rewind.core.settings import Settings
from rewind.runtime.kafka import kafka_access, kafka_probe

TIMEOUT_MILLISECONDS = 15_000
MADE_SECONDS = 30.0
NO_PARTITION = 2**31 - 1
"""A partition that no topic has."""
NO_GROUP = "Dead"
"""The state of a group that is not there."""
COPIED_SETTINGS = ("max.message.bytes", "min.insync.replicas")
"""Topic settings that a new output takes from live's, beside its partition count and clean-up."""


class Broker:
    """One cluster. Clients are opened a call and closed after it, so that a value of this can live for long."""

    def __init__(self, settings: Settings, isolation: str = "read_committed") -> None:
        """Keep the address; nothing is connected yet."""
        self._options = kafka_access.python_options(settings)
        self._address = settings.bootstrap
        self._isolation = isolation

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        with self._admin() as admin:
            return sorted(admin.list_topics())

    def topic(self, name: str) -> Topic | None:
        """Return the topic, or None when the broker says that there is none of that name.

        Raises:
            DeniedError: The broker does not show it, or its settings, to this user.
        """
        with self._admin() as admin:
            described = self._describe(admin, name)
            if described is None:
                return None
            partitions = sorted(p["partition_index"] for p in described["partitions"])
            topic_id, config = topic_id_text(described["topic_id"]), self._config(admin, name)
            earliest = self._offsets(admin, name, partitions, OffsetSpec.EARLIEST, self._isolation)
            # Written first: what is appended between the two looks must not pass for an open transaction.
            written = self._offsets(admin, name, partitions, OffsetSpec.LATEST, "read_uncommitted")
            latest = self._offsets(admin, name, partitions, OffsetSpec.LATEST, self._isolation)
            replicas = min(len(p["replica_nodes"]) for p in described["partitions"])
            return Topic(name, topic_id, earliest, latest, config, higher(written, latest), replicas)

    def create_topic(self, name: str, like: Topic, partitions: int, cleanup: str) -> str:
        """Create a topic with the size limits and replicas of another and return its id; harmless when it exists.

        Args:
            name: Its name.
            like: Whose settings in `COPIED_SETTINGS` it takes. One of them asks for replicas in step: where there are
                fewer, nothing could be written.
            partitions: Its partition count.
            cleanup: Its `cleanup.policy`.

        Raises:
            DeniedError: This user may not create it, or not see it.
        """
        copied = {key: like.config[key] for key in COPIED_SETTINGS if key in like.config}
        # Output and dead letters are compared from their first record on: time must not take it away.
        configs = {"cleanup.policy": cleanup, "retention.ms": "-1", **copied}
        with self._admin() as admin:
            spec = {"num_partitions": partitions, "replication_factor": like.replicas, "configs": configs}
            return self._created(admin, name, spec)

    def check_rights(self, held: Mapping[str, Sequence[str]], made: Collection[str] = ()) -> None:
        """Check rights on topics that there are, and that others may be made; nothing is made.

        Args:
            held: Rights by topic, as Kafka names them (`Read`, `DescribeConfigs`); of a topic that is not there none.
            made: Topics that are made if they are not there.

        Raises:
            DeniedError: This user lacks one: the first is told.
        """
        with self._admin() as admin:
            for name, rights in held.items():
                described = self._described(admin, name) if name in made else self._describe(admin, name)
                granted = None if described is None else _granted(described)
                for right in rights:
                    if granted is not None and right not in granted:
                        raise self._denied(right, "topic", name)
            for name in made:
                if self._described(admin, name) is None:
                    self._create(admin, name, {"num_partitions": 1}, only_try=True)

    def check_group(self, group: str, topic: str = "") -> None:
        """Check that a group may be deleted, and its positions on a topic, if one is named, committed; neither is done.

        Kafka tells the rights on a group only of one that is there. Of another it is asked for what has no effect: to
        commit a position of a partition that no topic has, and to delete what is not there.

        Raises:
            DeniedError: This user lacks a right: the first is told.
        """
        with self._admin() as admin:
            with self._allowed("Describe", "group", group):
                found = _coordinated(lambda: _described_group(admin, group))
            if found["group_state"] != NO_GROUP:
                granted = _granted(found)
                for right in ("Read", "Delete") if topic else ("Delete",):
                    if granted is not None and right not in granted:
                        raise self._denied(right, "group", group)
                return
            if topic:
                with self._allowed("Read", "group", group):
                    _coordinated(lambda: _commit_nowhere(admin, group, topic))
            with self._allowed("Delete", "group", group):
                _coordinated(lambda: _delete_group(admin, group))

    def create_control_topic(self, name: str) -> None:
        """Create a compacted topic of one partition; harmless when it exists."""
        with self._admin() as admin:
            self._created(admin, name, {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}})

    def delete_topic(self, name: str, topic_id: str, timeout: float = 60) -> bool:
        """Delete the topic of an id, wait until it is gone, and return whether there was one.

        Raises:
            RefusedError: The name now belongs to another topic.
            DeniedError: This user may not see it, or not delete it.
            RetryError: It is still there after `timeout` seconds.
        """
        with self._admin() as admin:
            described = self._describe(admin, name)
            if described is None:
                return False
            found = topic_id_text(described["topic_id"])
            if found != topic_id:
                raise RefusedError(
                    "topic",
                    f"{name} has id {found}, not {topic_id}",
                    "The topic was recreated by somebody else; see who owns it",
                )
            try:
                admin.delete_topics([uuid.UUID(bytes=_id_bytes(topic_id))])
            except (UnknownTopicIdError, UnknownTopicOrPartitionError):
                # Somebody was faster: that alone does not say that it is gone.
                self._wait_gone(admin, name, topic_id, timeout)
                return False
            except TopicAuthorizationFailedError as error:
                raise self._denied("Delete", "topic", name) from error
            self._wait_gone(admin, name, topic_id, timeout)
            return True

    def group_offsets(self, group: str, topic: str) -> Vector:
        """Return the committed positions of a consumer group on a topic; empty when there are none.

        Raises:
            DeniedError: This user may not see the group.
        """
        with self._admin() as admin, self._allowed("Describe", "group", group):
            try:
                found = _coordinated(lambda: admin.list_group_offsets(group))[group]
            except (GroupIdNotFoundError, KeyError):
                return {}
            return {tp.partition: meta.offset for tp, meta in found.items() if tp.topic == topic and meta.offset >= 0}

    def group_state(self, group: str) -> str | None:
        """Return the state of a consumer group as Kafka names it (`Stable`, `Empty`...), or None when there is none.

        Raises:
            DeniedError: This user may not see the group, which tells nothing of whether there is one.
        """
        with self._admin() as admin, self._allowed("Describe", "group", group):
            found = _coordinated(admin.list_groups)
            state = next((str(g["group_state"]) for g in found if g["group_id"] == group), None)
            if state is None:
                # One that must not be seen is left out of the list, and refused when it is asked for.
                with contextlib.suppress(GroupIdNotFoundError):
                    _coordinated(lambda: admin.list_group_offsets(group))
        return state

    def commit(self, group: str, topic: str, vector: Mapping[int, int]) -> None:
        """Commit positions for a group without joining it, as ordinary lag tools read them.

        Raises:
            DeniedError: This user may not act for the group, or not read the topic.
            RetryError: The broker did not take them.
        """
        offsets = {TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in vector.items()}
        with self._admin() as admin, self._allowed("Read", "group", group):
            answers = _coordinated(lambda: admin.alter_group_offsets(group, offsets))
            if GroupAuthorizationFailedError in answers.values():
                raise GroupAuthorizationFailedError(group)
            if TopicAuthorizationFailedError in answers.values():
                raise self._denied("Read", "topic", topic)
            refused = {tp.partition: error.__name__ for tp, error in answers.items() if error.errno != 0}
        if refused:
            raise RetryError(f"group {group}: the broker refused the positions of {refused}")

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group and return whether there was one.

        Raises:
            DeniedError: This user may not delete it.
            RetryError: It has members, or the broker does not delete it.
        """
        with self._admin() as admin, self._allowed("Delete", "group", group):
            return bool(_coordinated(lambda: _delete_group(admin, group)))

    def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Send one record and wait until it is stored.

        Raises:
            DeniedError: This user may not write to the topic.
            RetryError: The broker did not store it in time.
        """
        with self._reaching(), self._allowed("Write", "topic", topic):
            producer = KafkaProducer(**self._options, acks="all")
            try:
                producer.send(topic, key=key, value=value).get(timeout=30)
            finally:
                producer.close()

    def read_all(self, topic: str) -> list[Any]:
        """Return all records of a small topic, such as the control topic, in order of partition and offset.

        Raises:
            DeniedError: This user may not read it.
        """
        found = self.topic(topic)
        if found is None:
            return []
        with self._reaching(), self._allowed("Read", "topic", topic):
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

    def _created(self, admin: Any, name: str, spec: Mapping[str, Any]) -> str:
        """Create a topic unless there is one, wait until it can be used, and return its id."""
        if self._described(admin, name) is None:
            self._create(admin, name, spec)
        deadline = time.monotonic() + MADE_SECONDS
        while (described := self._describe(admin, name)) is None or not _led(described):
            if time.monotonic() > deadline:
                raise RetryError(f"topic {name} cannot be used {MADE_SECONDS:.0f} s after it was created")
            time.sleep(0.05)
        return topic_id_text(described["topic_id"])

    def _create(self, admin: Any, name: str, spec: Mapping[str, Any], *, only_try: bool = False) -> None:
        try:
            admin.create_topics({name: dict(spec)}, validate_only=only_try)
        except TopicAlreadyExistsError:
            pass
        except TopicAuthorizationFailedError as error:
            raise self._denied("Create", "topic", name) from error

    def _described(self, admin: Any, name: str) -> dict[str, Any] | None:
        """Return what the broker says of a topic that may not be there: one that is not shown counts as missing."""
        with contextlib.suppress(DeniedError):
            return self._describe(admin, name)
        return None

    def _describe(self, admin: Any, name: str) -> dict[str, Any] | None:
        """Return what the broker says of a topic, or None when it says that there is none.

        Raises:
            DeniedError: It does not show the topic to this user, which tells nothing of whether there is one.
        """
        found = [dict(each) for each in admin.describe_topics([name]) if each.get("name") == name]
        code = found[0].get("error_code", 0) if found else errors.UnknownError.errno
        if code == UnknownTopicOrPartitionError.errno:
            return None
        if code == TopicAuthorizationFailedError.errno:
            raise self._denied("Describe", "topic", name)
        if code:
            raise errors.for_code(code)(f"topic {name} was not described")
        return found[0]

    def _config(self, admin: Any, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        answer = admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        entries = next(iter(answer.values()))[name]
        if not entries and self._describe(admin, name) is not None:
            # The client passes over the error. Without settings a compacted topic would be taken for one that is not.
            raise self._denied("DescribeConfigs", "topic", name)
        return {key: str(entry["value"]) for key, entry in entries.items() if entry.get("value") is not None}

    def _wait_gone(self, admin: Any, name: str, topic_id: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while (seen := self._describe(admin, name)) is not None and topic_id_text(seen["topic_id"]) == topic_id:
            if time.monotonic() > deadline:
                raise RetryError(f"topic {name} is still there {timeout:.0f} s after its deletion")
            time.sleep(0.1)

    @contextmanager
    def _allowed(self, right: str, kind: str, name: str) -> Iterator[None]:
        """Run the body, which needs a right on a topic or group."""
        try:
            yield
        except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
            raise self._denied(right, kind, name) from error

    def _denied(self, right: str, kind: str, name: str) -> DeniedError:
        user = kafka_access.principal(self._options)
        problem = f"the broker denies {right} on {name} to {user or 'this user'}"
        grant = f"kafka-acls --bootstrap-server {self._address} --add --allow-principal {user or 'User:<its name>'}"
        cure = f"Grant {right} on {kind} {name}, then try again: {grant} --operation {right} --{kind} {name}"
        return DeniedError(kind, problem, cure)

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
        """Run the body with a client of this broker.

        Raises:
            RefusedError: The broker does not let this client in: the setting is named.
            RetryError: The broker is not reached.
        """
        kafka_access.check_login(self._options)
        try:
            yield
        except (KafkaError, OSError) as error:
            refused = kafka_probe.why_refused(self._options)
            if refused is not None:
                raise refused from error
            cure = "is it up (`make status`), and is REWIND_KAFKA_BOOTSTRAP right?"
            raise RetryError(f"Kafka at {self._address}: {type(error).__name__} {error}; {cure}") from error


def _granted(described: Mapping[str, Any]) -> set[str] | None:
    """Return the rights that a user has on a topic, as `Read` and `DescribeConfigs`; None where a broker tells none."""
    told = described.get("authorized_operations")
    return {"".join(map(str.capitalize, name.split("_"))) for name in told} if told else None


def _led(described: Mapping[str, Any]) -> bool:
    return all(partition.get("leader_id", -1) >= 0 for partition in described["partitions"])


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


def _described_group(admin: Any, group: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = admin.describe_groups([group])[group]
    # The client keeps this one as a text, for a group whose coordinator is not ready.
    if CoordinatorLoadInProgressError.__name__ in str(found.get("error")):
        raise CoordinatorLoadInProgressError(group)
    return found


def _commit_nowhere(admin: Any, group: str, topic: str) -> None:
    # The client raises nothing: it answers with an error of each partition. Kafka looks at the group before its topics.
    error = admin.alter_group_offsets(group, {TopicPartition(topic, NO_PARTITION): OffsetAndMetadata(0, "", -1)})
    for kind in error.values():
        if kind not in (UnknownTopicOrPartitionError, TopicAuthorizationFailedError):
            raise kind(group)


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
