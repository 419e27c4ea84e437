"""Both clients of Kafka against a broker as companies run it: logins, refusals that name their cure, and rights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import functions as F

from rewind.adapters import kafka
from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.runtime import announce, rights
from rewind.runtime.drivers import submit
from rewind.runtime.kafka import broker as real
from rewind.runtime.kafka import kafka_access
from tests.support import secured
from tests.support.secured import CLIENT, PASSWORD, Secured

TOPIC = "secured"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[Secured]:
    """The broker, with a topic that each user may read and write."""
    with secured.running(tmp_path_factory.mktemp("secured"), jars) as running:
        admin = KafkaAdminClient(bootstrap_servers=running.inner)
        running.logins(admin)
        admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)
        for user in secured.USERS.values():
            for right in ("Read", "Write", "DescribeConfigs"):
                secured.grant(admin, user, right, "topic", TOPIC)
        admin.close()
        yield running


@pytest.fixture
def reach(closed: Secured, make_settings: Callable[..., Settings]) -> Callable[..., Settings]:
    """Settings that log in at a listener: `reach("SCRAM", sasl_plain_password="no")`."""

    def make(listener: str, address: str = "", **changed: str | None) -> Settings:
        path = closed.written("options", closed.options(listener, **changed))
        return make_settings(address or closed.addresses[listener], REWIND_KAFKA_OPTIONS_FILE=str(path))

    return make


@pytest.mark.parametrize(
    ("listener", "changed"),
    [("SCRAM", {}), ("SCRAM", {"sasl_mechanism": "SCRAM-SHA-256"}), ("PLAIN", {}), ("MUTUAL", {}), ("OAUTH", {})],
)
def test_python_and_spark_log_in_by_one_file(reach, spark, listener, changed):
    settings = reach(listener, **changed)
    broker = real.Broker(settings)
    before = broker.topic(TOPIC)
    headers = F.array(F.struct(F.lit("h").alias("key"), F.lit(b"1").alias("value")))
    rows = spark.range(3).select(
        F.lit(TOPIC).alias("topic"),
        F.lit(None).cast("binary").alias("key"),
        F.concat(F.lit(f"{listener} "), F.col("id").cast("string")).cast("binary").alias("value"),
        headers.alias("headers"),
    )
    kafka.write(rows, settings, {})
    after = broker.topic(TOPIC)
    assert after.latest[0] == before.latest[0] + 3
    found = kafka.read_range(spark, settings, TOPIC, before.latest, after.latest, "read_committed").collect()
    values = sorted(bytes(row.value) for row in found)
    assert values == [f"{listener} {number}".encode() for number in range(3)]
    assert sorted(record.value for record in broker.read_all(TOPIC)[-3:]) == values


WRONG = {
    "password": (
        "SCRAM",
        {"sasl_plain_password": "no"},
        "refuses the login by SCRAM-SHA-512.*Fix sasl_plain_username",
    ),
    "user": ("SCRAM", {"sasl_plain_username": "no"}, "refuses the login by SCRAM-SHA-512"),
    "plain password": (
        "PLAIN",
        {"sasl_plain_password": "no"},
        "refuses the login by PLAIN: .* Invalid username or password",
    ),
    "mechanism": (
        "SCRAM",
        {"sasl_mechanism": "PLAIN"},
        "knows no PLAIN. Set sasl_mechanism to SCRAM-SHA-512 or SCRAM-SHA-256",
    ),
    "authority": ("SCRAM", {"ssl_cafile": "stranger.pem"}, "is not trusted: .*its authority in ssl_cafile"),
    "no authority": ("SCRAM", {"ssl_cafile": None}, "is not trusted: .*its authority in ssl_cafile"),
    "no TLS": (
        "SCRAM",
        {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
        "speaks TLS. Set security_protocol to",
    ),
    "no certificate": (
        "MUTUAL",
        {"ssl_certfile": None, "ssl_keyfile": None, "ssl_password": None},
        "does not let this client in by its certificate .*ssl_certfile",
    ),
    "key's password": ("MUTUAL", {"ssl_password": "no"}, "the key's password is wrong"),
    "secret": (
        "OAUTH",
        {"sasl_oauth_client_secret": "no"},
        "endpoint of tokens .* answers 401. Fix sasl_oauth_client_id",
    ),
}


@pytest.mark.shows("secure", refused_login="one line that names the setting")
@pytest.mark.parametrize(("listener", "changed", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_line_that_names_the_setting(reach, monkeypatch, listener, changed, told):
    monkeypatch.setattr(real, "TIMEOUT_MILLISECONDS", 500)
    with pytest.raises(RefusedError, match=f"^REWIND_KAFKA_OPTIONS_FILE: .*{told}") as refused:
        real.Broker(reach(listener, **changed)).topic(TOPIC)
    assert "\n" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_wrong_name_or_port_is_named_too(reach, closed, make_settings, monkeypatch):
    monkeypatch.setattr(real, "TIMEOUT_MILLISECONDS", 500)
    other_name = closed.addresses["SCRAM"].replace("127.0.0.1", "localhost")
    with pytest.raises(
        RefusedError, match=r"^REWIND_KAFKA_BOOTSTRAP: the certificate of the broker at localhost:\d+ is"
    ):
        real.Broker(reach("SCRAM", other_name)).topic(TOPIC)
    with pytest.raises(RefusedError, match=r"speaks no TLS\. Fix security_protocol, or the port"):
        real.Broker(reach("SCRAM", closed.inner)).topic(TOPIC)
    with pytest.raises(RefusedError, match=r"speaks TLS\. Set security_protocol to SSL or SASL_SSL, not PLAINTEXT"):
        real.Broker(make_settings(closed.addresses["SCRAM"])).topic(TOPIC)
    options = closed.options("PLAIN", security_protocol="SASL_PLAINTEXT", ssl_cafile=None)
    path = str(closed.written("plain", options))
    with pytest.raises(RefusedError, match=r"asks for no login\. Set security_protocol to PLAINTEXT or SSL"):
        real.Broker(make_settings(closed.inner, REWIND_KAFKA_OPTIONS_FILE=path)).topic(TOPIC)


def test_what_is_away_asks_for_a_retry(reach, monkeypatch):
    monkeypatch.setattr(real, "TIMEOUT_MILLISECONDS", 500)
    with pytest.raises(RetryError, match="is it up"):
        real.Broker(reach("SCRAM", "127.0.0.1:1")).topic(TOPIC)
    with pytest.raises(RetryError, match=r"the endpoint of tokens http://127.0.0.1:1/ gives none"):
        real.Broker(reach("OAUTH", sasl_oauth_token_url="http://127.0.0.1:1/")).topic(TOPIC)


@pytest.mark.shows("secure", missing_rights="9, each named with its command")
def test_each_missing_right_is_named_with_its_command(reach, closed):
    broker, admin = real.Broker(reach("PLAIN")), KafkaAdminClient(bootstrap_servers=closed.inner)
    admin.create_topics({"orders": {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}}})
    like = Topic("x", "i", {0: 0}, {0: 0}, {})
    topic_id = real.topic_id_text(dict(admin.describe_topics(["orders"])[0])["topic_id"])
    asked = [
        (lambda: broker.topic("orders").compacted, [("Describe", "topic"), ("DescribeConfigs", "topic")], True),
        (lambda: broker.send("orders", b"k", b"v"), [("Write", "topic")], None),
        (lambda: [record.key for record in broker.read_all("orders")], [("Read", "topic")], [b"k"]),
        (lambda: broker.group_state("readers"), [("Describe", "group")], None),
        (lambda: broker.commit("readers", "orders", {0: 1}), [("Read", "group")], None),
        (lambda: broker.group_offsets("readers", "orders"), [], {0: 1}),
        (lambda: broker.delete_group("readers"), [("Delete", "group")], True),
        (lambda: broker.delete_topic("orders", topic_id), [("Delete", "topic")], True),
        (lambda: broker.create_topic("orders", like, 1, "delete") != topic_id, [("Create", "topic")], True),
    ]
    for call, missing, result in asked:
        for right, kind in missing:
            name = {"topic": "orders", "group": "readers"}[kind]
            with pytest.raises(
                DeniedError, match=f"^{kind}: the broker denies {right} on {name} to User:bob. Grant"
            ) as denied:
                call()
            assert str(denied.value).endswith(f"--add --allow-principal User:bob --operation {right} --{kind} {name}")
            secured.grant(admin, "bob", right, kind, name)
        assert call() == result
    admin.close()


@pytest.mark.shows("secure", rights_before_making="25, nothing made without one")
def test_what_a_job_will_need_is_checked_before_anything_is_made(reach, closed):
    broker, admin = real.Broker(reach("PLAIN")), KafkaAdminClient(bootstrap_servers=closed.inner)
    declared, outputs = Pipeline("visits", "source", "a STRING", "made"), ("made-g2", "made-g2-dead")
    old = Generation("visits-g1", "visits", "live", "t", "b", {"config": {}}, {0: 0}, {0: 0}, "made-g1", "made-g1-dead")
    admin.create_topics({name: {"num_partitions": 1} for name in ("source", "made-g1", "made-g1-dead")})
    needed = [
        ("Describe", "source"),
        ("Read", "source"),
        ("DescribeConfigs", "source"),
        ("Describe", "made-g1"),
        ("Read", "made-g1"),
        ("DescribeConfigs", "made-g1"),
        ("Describe", "made-g1-dead"),
        ("Read", "made-g1-dead"),
        ("DescribeConfigs", "made-g1-dead"),
        ("Create", "made-g2"),
        ("Create", "made-g2-dead"),
        ("Create", announce.TOPIC),
    ]
    for right, name in needed:
        with pytest.raises(DeniedError, match=f"denies {right} on {name} to User:bob. Grant {right} on topic {name},"):
            rights.before_making(broker, declared, "visits-g2", outputs, old)
        secured.grant(admin, "bob", right, "topic", name)
    for right in ("Describe", "Read", "Delete"):
        with pytest.raises(
            DeniedError, match=f"denies {right} on visits-g2 to User:bob. Grant {right} on group visits-g2"
        ):
            rights.before_making(broker, declared, "visits-g2", outputs, old)
        secured.grant(admin, "bob", right, "group", "visits-g2")
    rights.before_making(broker, declared, "visits-g2", outputs, old)
    assert broker.group_state("visits-g2") is None, "it was only tried"
    assert not {*outputs, announce.TOPIC} & set(admin.list_topics()), "nothing was made"
    admin.create_topics({name: {"num_partitions": 1} for name in (*outputs, announce.TOPIC)})
    for name in outputs:
        # Read and Write imply it.
        secured.grant(admin, "bob", "Describe", "topic", name)
    for name in outputs:
        for right in ("Write", "Read", "DescribeConfigs", "Delete"):
            with pytest.raises(DeniedError, match=f"denies {right} on {name} to User:bob"):
                rights.when_made(broker, outputs)
            secured.grant(admin, "bob", right, "topic", name)
    rights.when_made(broker, outputs)
    secured.grant(admin, "bob", "Describe", "topic", announce.TOPIC)
    for right in ("Write", "Read"):
        with pytest.raises(DeniedError, match=f"denies {right} on {announce.TOPIC} to User:bob"):
            rights.before_a_switch(broker, (old,))
        secured.grant(admin, "bob", right, "topic", announce.TOPIC)
    rights.before_a_switch(broker, (old,))
    admin.close()


def test_a_group_that_is_there_is_only_asked_about(reach, closed):
    broker, admin = real.Broker(reach("PLAIN")), KafkaAdminClient(bootstrap_servers=closed.inner)
    admin.create_topics({"read": {"num_partitions": 1}})
    secured.grant(admin, "bob", "Read", "topic", "read")
    secured.grant(admin, "bob", "Read", "group", "there")
    broker.commit("there", "read", {0: 7})
    with pytest.raises(DeniedError, match="denies Delete on there to User:bob"):
        broker.check_group("there", "read")
    secured.grant(admin, "bob", "Delete", "group", "there")
    broker.check_group("there", "read")
    assert broker.group_offsets("there", "read") == {0: 7}
    admin.close()


def test_a_token_is_asked_for_once_in_its_life(closed, monkeypatch):
    asked = []
    provider = kafka_access.ClientCredentials(f"{closed.tokens}/token", CLIENT, secured.CLIENT_SECRET)
    real_ask = provider._ask
    monkeypatch.setattr(provider, "_ask", lambda: asked.append(1) or real_ask())
    assert provider.token() == provider.token()
    assert len(asked) == 1
    monkeypatch.setattr(kafka_access.time, "monotonic", lambda: provider._until)
    provider.token()
    assert len(asked) == 2


@pytest.mark.parametrize("listener", secured.LISTENERS)
def test_spark_shows_no_secret_of_a_login(reach, listener):
    options = kafka_access.spark_options(reach(listener))
    shown = {
        k: v for k, v in options.items() if not re.search(submit.REDACTED, k) and not re.search(submit.REDACTED, v)
    }
    open_ones = {
        "kafka.bootstrap.servers",
        "kafka.security.protocol",
        "kafka.sasl.mechanism",
        "kafka.ssl.truststore.type",
    }
    assert shown.keys() <= open_ones | {"kafka.ssl.truststore.certificates", "kafka.sasl.login.callback.handler.class"}
