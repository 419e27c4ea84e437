"""Print how many records a topic holds, and a hash of their keys, values and sources in any order.

`digest.py BOOTSTRAP TOPIC`. Of the header that names a record's source the place alone counts, for the scripts do not
know the topic's id. Instants count as instants: zeros of a second may be written or not.
"""

import hashlib
import sys
from datetime import datetime

import orjson
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic = sys.argv[1:3]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "digest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
partitions = consumer.list_topics(topic).topics[topic].partitions
ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in partitions}
consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end])
left, count, total = sum(ends.values()), 0, 0
while left > 0:
    for message in consumer.consume(10_000, 1.0):
        left -= 1
        source = dict(message.headers())["rewind-source"].split(b":", 1)[1]
        visit = orjson.loads(message.value())
        visit["event_time"] = datetime.fromisoformat(visit["event_time"]).timestamp()
        body = b"\0".join((message.key(), orjson.dumps(visit, option=orjson.OPT_SORT_KEYS), source))
        total ^= int.from_bytes(hashlib.blake2b(body, digest_size=16).digest(), "big")
        count += 1
consumer.close()
print(count, f"{total:032x}")
