"""What a careful engineer writes in an afternoon: each record of a topic converted into another, with the headers.

`convert.py BOOTSTRAP SOURCE TARGET ZONE`. It reads to the ends that it sees first. Runs with the peers' environment.
"""

import sys
from datetime import datetime
from zoneinfo import ZoneInfo

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, source, target, zone = sys.argv[1:5]
local = ZoneInfo(zone)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": f"{target}-script",
        "enable.auto.commit": False,
        "fetch.min.bytes": 1_000_000,
        "fetch.wait.max.ms": 50,
        "queued.min.messages": 1_000_000,
        "check.crcs": False,
    }
)
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": 262144,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
    }
)
partitions = consumer.list_topics(source).topics[source].partitions
ends = {p: consumer.get_watermark_offsets(TopicPartition(source, p))[1] for p in partitions}
consumer.assign([TopicPartition(source, p, 0) for p, end in ends.items() if end])
left = sum(ends.values())
while left > 0:
    for message in consumer.consume(10_000, 1.0):
        if message.error():
            raise SystemExit(message.error())
        p, o = message.partition(), message.offset()
        if o >= ends[p]:
            continue
        left -= 1
        visit = orjson.loads(message.value())
        at = datetime.fromisoformat(visit["event_time"]).replace(tzinfo=local)
        value = orjson.dumps(
            {
                "event_identifier": visit["event_id"],
                "visit_identifier": visit["visit_id"],
                "event_time": at.isoformat(timespec="microseconds"),
                "visited_page": visit["page"],
            }
        )
        headers = [("rewind-job", b"script"), ("rewind-token", b"1"), ("rewind-source", b"topic:%d:%d" % (p, o))]
        while True:
            try:
                producer.produce(target, value, message.key(), headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.poll(0)
producer.flush()
consumer.close()
