"""kafka-python's adapter; tests/clients/client.py has the contract."""
import json
import signal
import sys

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

PATIENCE = 60


def version():
    print(kafka.__version__)


def create(address, topic, partitions):
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, int(partitions), 1)])
    admin.close()


def produce(address, topic, codec, mode):
    producer = kafka.KafkaProducer(
        bootstrap_servers=address, acks="all", retries=1000, linger_ms=5,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=mode == "idempotent",
        max_in_flight_requests_per_connection=5 if mode == "idempotent" else 1)
    futures = []
    for line in sys.stdin:
        key, value, headers = json.loads(line)
        headers = [(name, text.encode()) for name, text in headers]
        futures.append(producer.send(topic, value.encode(), key.encode(), headers=headers))
    producer.flush(PATIENCE)
    for future in futures:
        future.get(PATIENCE)
    producer.close()


def show(message):
    headers = [(name, text.decode()) for name, text in message.headers]
    print(json.dumps([message.partition, message.offset, message.timestamp,
                      message.key.decode(), message.value.decode(), headers]))


def consumer_of(address, group=None):
    return kafka.KafkaConsumer(bootstrap_servers=address, group_id=group,
                               enable_auto_commit=False, auto_offset_reset="earliest",
                               check_crcs=True)


def consume(address, group, topic):
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    consumer = consumer_of(address, group)
    consumer.subscribe([topic])
    while not stopping:
        polled = consumer.poll(200)
        for messages in polled.values():
            for message in messages:
                show(message)
        sys.stdout.flush()
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:  # a rebalance or no broker: the next one commits
                print(repr(error), file=sys.stderr, flush=True)
    consumer.close()


def fetch(address, topic, ends):
    consumer = consumer_of(address)
    left = {kafka.TopicPartition(topic, int(number)): end
            for number, end in json.loads(ends).items() if end}
    consumer.assign(list(left))
    consumer.seek_to_beginning()
    while left:
        polled = consumer.poll(PATIENCE * 1000)
        if not polled:
            sys.exit(f"nothing for {PATIENCE} s, {left} open")
        for partition, messages in polled.items():
            for message in messages:
                show(message)
                if message.offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
    consumer.close()


def partitions_of(consumer, topic):
    return [kafka.TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic))]


def committed(address, group, topic):
    consumer = consumer_of(address, group)
    print(json.dumps({part.partition: consumer.committed(part)
                      for part in partitions_of(consumer, topic)}))
    consumer.close()


def offsets(address, topic, timestamp):
    consumer = consumer_of(address)
    parts = partitions_of(consumer, topic)
    times = consumer.offsets_for_times({part: int(timestamp) for part in parts})
    found = [consumer.beginning_offsets(parts), consumer.end_offsets(parts),
             {part: at.offset if at else -1 for part, at in times.items()}]
    print(json.dumps([{part.partition: offset for part, offset in row.items()} for row in found]))
    consumer.close()


if __name__ == "__main__":
    steps = (version, create, produce, consume, fetch, committed, offsets)
    {step.__name__: step for step in steps}[sys.argv[1]](*sys.argv[2:])
