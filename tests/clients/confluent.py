"""confluent-kafka's part of the scenario: one step for each run.

    confluent.py version
    confluent.py create ADDRESS TOPIC PARTITIONS
    confluent.py produce ADDRESS TOPIC CODEC all|idempotent   records as JSON lines on standard input
    confluent.py consume ADDRESS TOPIC PARTITIONS             records as JSON lines on standard output
"""
import json
import sys

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE = 60


def version():
    print(json.dumps([ck.version()[0] if isinstance(ck.version(), tuple) else ck.version(),
                      ck.libversion()[0]]))


def create(address, topic, partitions):
    admin = AdminClient({"bootstrap.servers": address})
    answers = admin.create_topics([NewTopic(topic, int(partitions), 1)])
    answers[topic].result(PATIENCE)


def produce(address, topic, codec, acks):
    failures, delivered = [], []

    def done(error, message):
        (failures if error else delivered).append(error or message.offset())

    producer = ck.Producer({"bootstrap.servers": address, "compression.type": codec,
                            "acks": "all", "enable.idempotence": acks == "idempotent",
                            "linger.ms": 5})
    lines = sys.stdin.read().splitlines()
    for line in lines:
        key, value, headers = json.loads(line)
        headers = [(name, text.encode()) for name, text in headers]
        producer.produce(topic, value, key, headers=headers, on_delivery=done)
        producer.poll(0)
    left = producer.flush(PATIENCE)
    if left or failures or len(delivered) != len(lines):
        sys.exit(f"{len(delivered)} of {len(lines)} delivered, {left} open, {failures[:3]}")


def consume(address, topic, partitions):
    consumer = ck.Consumer({"bootstrap.servers": address, "group.id": "not-used",
                            "enable.auto.commit": False, "enable.partition.eof": True,
                            "check.crcs": True, "auto.offset.reset": "error"})
    consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)
                     for partition in range(int(partitions))])
    still_open = int(partitions)
    while still_open:
        message = consumer.poll(PATIENCE)
        if message is None:
            sys.exit(f"nothing for {PATIENCE} s, {still_open} partitions open")
        if message.error():
            if message.error().code() != ck.KafkaError._PARTITION_EOF:
                sys.exit(str(message.error()))
            still_open -= 1
            continue
        headers = [(name, text.decode()) for name, text in message.headers() or []]
        print(json.dumps([message.partition(), message.offset(), message.key().decode(),
                          message.value().decode(), headers]))
    consumer.close()


if __name__ == "__main__":
    steps = {"version": version, "create": create, "produce": produce, "consume": consume}
    steps[sys.argv[1]](*sys.argv[2:])
