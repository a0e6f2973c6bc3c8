"""A Kafka client (librdkafka): writes what tests/tables reads, and reads it back as rows. The
steps are in ../readers.py."""
import json
import sys

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rows import dump, row, serve

PATIENCE = 60
COLOURS = [b"red", b"orange", b"yellow", b"white", b"grey", b"black", b"brown", b"blue"]
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


def bulk(topic, count):
    """JSON with a colour of eight, a number and some ballast; every tenth has no key."""
    failures = []
    producer = Producer({"bootstrap.servers": ADDRESS, "acks": "all", "linger.ms": 50,
                         "compression.type": "lz4", "batch.size": 1_000_000,
                         "batch.num.messages": 10_000, "message.max.bytes": 1_000_000,
                         "queue.buffering.max.messages": 200_000,
                         "on_delivery": lambda error, _: error and failures.append(error)})
    for number in range(int(count)):
        value = b'{"lava":"%s","heat":%d,"text":"%s"}' % (
            COLOURS[number * 7 % 8], number * 7919 % 1000, b"basalt" * (number % 5))
        key = None if number % 10 == 0 else b"key-%d" % (number % 1000)
        while True:
            try:
                producer.produce(topic, value, key, partition=number // 1000 % 3)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(PATIENCE)
    if left or failures:
        raise RuntimeError(f"{left} records were not sent; {failures[:3]}")


def create(topic, *settings):
    """A topic of three partitions with settings NAME=VALUE."""
    admin = AdminClient({"bootstrap.servers": ADDRESS})
    new = NewTopic(topic, 3, 1, config=dict(setting.split("=", 1) for setting in settings))
    for done in admin.create_topics([new]).values():
        done.result(PATIENCE)


def new(topic, count):
    """Records of now, so that retention by time has something to wait for."""
    producer = Producer({"bootstrap.servers": ADDRESS, "acks": "all"})
    for number in range(int(count)):
        producer.produce(topic, b"%d" % number, partition=number % 3)
        producer.poll(0)
    if producer.flush(PATIENCE):
        raise RuntimeError("records were not sent")


def empty(topic):
    """DeleteRecords up to the high watermark, which is -1."""
    admin = AdminClient({"bootstrap.servers": ADDRESS})
    ends = [TopicPartition(topic, partition, -1) for partition in range(3)]
    for done in admin.delete_records(ends).values():
        print(done.result(PATIENCE).low_watermark)


def version():
    print(confluent_kafka.__version__, "librdkafka", confluent_kafka.libversion()[0])


ADDRESS = sys.argv[1]
serve(globals())
