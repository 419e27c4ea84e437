"""The proof of a mirror against a real broker, by the product's own submits: markers, a loss, a recorded deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from delta.tables import DeltaTable
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from rewind.adapters import mirror
from rewind.registry import rewinds
from rewind.registry.mirrors import deletions, mirror_log, proof_log
from rewind.registry.mirrors.proof_log import Proven
from tests.scenarios import crashes
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(1200)]


def newest(shop: Workshop) -> Proven:
    with shop.registry() as connection:
        topic_id = mirror_log.newest_id(connection, shop.topic)
        assert topic_id is not None
        found = proof_log.newest(connection, shop.topic, topic_id)
    assert found is not None
    return found


def in_a_transaction(shop: Workshop, first: int, count: int) -> None:
    """Produce records to partition 0 in one transaction, whose marker takes the offset after them."""
    producer = KafkaProducer(bootstrap_servers=shop.settings.bootstrap, transactional_id=f"{shop.topic}-writer")
    producer.init_transactions()
    producer.begin_transaction()
    for n in range(first, first + count):
        key, value = crashes.visit(n)
        producer.send(shop.topic, key=key, value=value, partition=0)
    producer.commit_transaction()
    producer.close()


def counts(proven: Proven, *names: str) -> list[int]:
    return [proven.counts[name] for name in names]


def test_a_mirror_is_proven_against_kafka_and_a_loss_refuses_a_rewind(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("proven", 2)
    for p in range(2):
        shop.produce(*(crashes.visit(n) for n in range(p, 40, 2)), partition=p)
    shop.start(shop.mirror)
    shop.caught_up(shop.mirror)
    in_a_transaction(shop, 40, 10)
    shop.produce(*(crashes.visit(n) for n in range(50, 60)))
    shop.caught_up(shop.mirror)
    shop.stop(shop.mirror)

    shop.run("prove")
    whole = newest(shop)
    assert (whole.verdict, whole.asked_by) == ("whole", "prove")
    assert counts(whole, "offsets", "read", "compared", "transaction", "lost") == [61, 60, 60, 1, 0]

    DeltaTable.forPath(spark, mirror.table_path(shop.settings, shop.topic)).delete("partition = 0 AND offset IN (6, 7)")
    ended = shop.submit("prove", "--topic", shop.topic)
    assert ended.code == 70, ended.output[-4000:]
    assert f"the mirrors of {shop.topic} are damaged" in ended.output
    assert "lost: partition 0 offset 6-7" in ended.output
    assert counts(newest(shop), "read", "compared", "lost") == [58, 58, 2]

    shop.deploy()
    refused = shop.plan("rw-lost", same_code=True, accept_gaps=f'{{"{shop.topic}":{{"0":[[30,31]]}}}}')
    assert refused.code == 64, refused.output[-4000:]
    assert "from: the mirror has lost partition 0 offset 6-7" in refused.output
    with shop.registry() as connection:
        assert rewinds.find(connection, "rw-lost") is None

    deletions.record(shop.settings.registry_url, shop.topic, 0, 6, 8, "asked for")
    shop.planned("rw-deleted", same_code=True, accept_gaps=f'{{"{shop.topic}":{{"0":[[30,31]]}}}}')
    proven = newest(shop)
    assert (proven.verdict, proven.asked_by) == ("whole", "rw-deleted")
    assert counts(proven, "deletion", "transaction", "lost") == [2, 1, 0]
