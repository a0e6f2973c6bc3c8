"""A Kafka client (librdkafka): writes what tests/tables reads, and reads it back as rows. The
steps are in ../readers.py."""
import json
import sys

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from rows import dump, row, serve

PATIENCE = 60
# Milliseconds: the first one there is, and the year 2000; all others are of now.
TIMES = {0: 1, 1: 946_684_800_000}


def record(number):
    """Keys and values that are null, empty, or no text; headers that repeat and lack a value."""
    key = {0: None, 1: b""}.get(number % 11, b"key-%d" % (number % 97))
    value = {0: None, 1: b"", 2: bytes(range(256))}.get(
        number % 13, b'{"number": %d, "lava": "%s"}' % (number, b"basalt " * (number % 40)))
    headers = [] if number % 3 == 0 else \
        [("number", b"%d" % number), ("twice", None), ("twice", b""), ("twice", b"\xff\x00")]
    return key, value, headers, TIMES.get(number % 17)


def produce(topic, codec, first, count):
    failures = []
    producer = Producer({"bootstrap.servers": ADDRESS, "acks": "all", "linger.ms": 5,
                         "compression.type": codec, "enable.idempotence": True})
    for number in range(int(first), int(first) + int(count)):
        key, value, headers, timestamp = record(number)
        more = {} if timestamp is None else {"timestamp": timestamp}
        producer.produce(topic, value, key, partition=number % 3, headers=headers,
                         on_delivery=lambda error, _: error and failures.append(error), **more)
        producer.poll(0)
    left = producer.flush(PATIENCE)
    if left or failures:
        raise RuntimeError(f"{left} records were not sent; {failures[:3]}")


def rows(topic, ends):
    """Everything from the beginning to {"partition": end, ...}."""
    ends = {int(partition): end for partition, end in json.loads(ends).items()}
    consumer = Consumer({"bootstrap.servers": ADDRESS, "group.id": "unused",
                         "enable.partition.eof": True, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    finished = set()
    while len(finished) < len(ends):
        message = consumer.poll(PATIENCE)
        if message is None:
            raise RuntimeError(f"nothing within {PATIENCE} s")
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(message.error())
            finished.add(message.partition())
            continue
        headers = [(name.encode(), value) for name, value in message.headers() or []]
        stamped = message.timestamp()[1] * 1000
        dump([row(message.partition(), message.offset(), message.key(), message.value(), headers,
                  None, stamped)])
    consumer.close()


def version():
    print(confluent_kafka.__version__, "librdkafka", confluent_kafka.libversion()[0])


ADDRESS = sys.argv[1]
serve(globals())
