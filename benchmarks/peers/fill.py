"""Fill a topic with visits: `fill.py BOOTSTRAP TOPIC PARTITIONS RECORDS`. Runs with the peers' environment."""

import sys

from confluent_kafka import Producer

bootstrap, topic, partitions, records = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262144, "compression.type": "lz4"})
for n in range(records):
    value = b'{"event_id":"click-%08d","visit_id":%d,"event_time":"2025-09-04T07:%02d:%02d.%06d","page":"page-%d"}' % (
        n,
        n % 100_000,
        n // 60 % 60,
        n % 60,
        n % 1_000_000,
        n % 97,
    )
    while True:
        try:
            producer.produce(topic, value, b"visit-%d" % (n % 100_000), partition=n % partitions)
            break
        except BufferError:
            producer.poll(0.1)
    if n % 10_000 == 0:
        producer.poll(0)
producer.flush()
