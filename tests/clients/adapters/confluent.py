"""confluent-kafka's adapter; tests/clients/client.py has the contract.

    confluent.py refusals ADDRESS TOPIC        what has to be refused, and must not end the process
    confluent.py groups ADDRESS GROUP TOPIC    what administrators do with an empty group
"""
import json
import signal
import sys

import confluent_kafka as ck
from confluent_kafka.admin import (AclBindingFilter, AclOperation, AclPermissionType, AdminClient,
                                   NewTopic, ResourcePatternType, ResourceType)

PATIENCE = 60


def version():
    own = ck.version()
    print(own[0] if isinstance(own, tuple) else own, f"(librdkafka {ck.libversion()[0]})")


def create(address, topic, partitions):
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, int(partitions), 1)])[topic].result(PATIENCE)


def produce(address, topic, codec, mode):
    failures, delivered, sent = [], [], 0

    def done(error, message):
        (failures if error else delivered).append(error or message.offset())

    producer = ck.Producer({"bootstrap.servers": address, "compression.type": codec,
                            "acks": "all", "enable.idempotence": mode == "idempotent",
                            "max.in.flight.requests.per.connection":
                                5 if mode == "idempotent" else 1,
                            "linger.ms": 5})
    for line in sys.stdin:
        key, value, headers = json.loads(line)
        headers = [(name, text.encode()) for name, text in headers]
        producer.produce(topic, value, key, headers=headers, on_delivery=done)
        producer.poll(0)
        sent += 1
    left = producer.flush(PATIENCE)
    if left or failures or len(delivered) != sent:
        sys.exit(f"{len(delivered)} of {sent} delivered, {left} open, {failures[:3]}")


def show(message):
    headers = [(name, text.decode()) for name, text in message.headers() or []]
    print(json.dumps([message.partition(), message.offset(), message.timestamp()[1],
                      message.key().decode(), message.value().decode(), headers]))


def consumer_of(address, group):
    return ck.Consumer({"bootstrap.servers": address, "group.id": group,
                        "enable.auto.commit": False, "enable.partition.eof": group == "none",
                        "check.crcs": True, "auto.offset.reset": "earliest"})


def consume(address, group, topic):
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    consumer = consumer_of(address, group)
    consumer.subscribe([topic])
    while not stopping:
        messages = consumer.consume(500, 0.2)
        for message in messages:
            if message.error():
                print(message.error(), file=sys.stderr, flush=True)
            else:
                show(message)
        sys.stdout.flush()
        if any(not message.error() for message in messages):
            try:
                consumer.commit(asynchronous=False)
            except ck.KafkaException as error:  # a rebalance or no broker: the next one commits
                print(error, file=sys.stderr, flush=True)
    consumer.close()


def fetch(address, topic, ends):
    consumer = consumer_of(address, "none")
    still_open = {int(partition) for partition in json.loads(ends)}
    consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)
                     for partition in still_open])
    while still_open:
        message = consumer.poll(PATIENCE)
        if message is None:
            sys.exit(f"nothing for {PATIENCE} s, {still_open} open")
        if not message.error():
            show(message)
        elif message.error().code() == ck.KafkaError._PARTITION_EOF:
            still_open.discard(message.partition())
        else:
            sys.exit(str(message.error()))
    consumer.close()


def partitions_of(consumer, topic):
    return sorted(consumer.list_topics(topic, PATIENCE).topics[topic].partitions)


def committed(address, group, topic):
    consumer = consumer_of(address, group)
    asked = [ck.TopicPartition(topic, partition) for partition in partitions_of(consumer, topic)]
    print(json.dumps({found.partition: found.offset
                      for found in consumer.committed(asked, PATIENCE)}))


def offsets(address, topic, timestamp):
    consumer = consumer_of(address, "none")
    firsts, lasts = {}, {}
    partitions = partitions_of(consumer, topic)
    for partition in partitions:
        firsts[partition], lasts[partition] = consumer.get_watermark_offsets(
            ck.TopicPartition(topic, partition), PATIENCE)
    asked = [ck.TopicPartition(topic, partition, int(timestamp)) for partition in partitions]
    found = {part.partition: part.offset for part in consumer.offsets_for_times(asked, PATIENCE)}
    print(json.dumps([firsts, lasts, found]))


def refusals(address, topic):
    """A record above max.message.bytes comes back with its error; ACLs are asked for, which once
    ended librdkafka's process; a topic that is there is not made again."""
    errors = []
    producer = ck.Producer({"bootstrap.servers": address, "message.max.bytes": 8 << 20})
    producer.produce(topic, bytes(4 << 20), on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE)
    if [error and error.code() for error in errors] != [ck.KafkaError.MSG_SIZE_TOO_LARGE]:
        sys.exit(f"4 MiB in a topic that takes 1 MiB: {errors}")
    admin = AdminClient({"bootstrap.servers": address})
    everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
                                  AclOperation.ANY, AclPermissionType.ANY)
    try:
        found = admin.describe_acls(everything).result(PATIENCE)
        if found:
            sys.exit(f"ACLs that nobody made: {found}")
    except ck.KafkaException as error:
        known = (ck.KafkaError.SECURITY_DISABLED, ck.KafkaError._UNSUPPORTED_FEATURE)
        if error.args[0].code() not in known:
            sys.exit(f"DescribeAcls: {error}")
    try:
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(PATIENCE)
        sys.exit(f"{topic} was made twice")
    except ck.KafkaException as error:
        if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def groups(address, group, topic):
    """Listed, described, set back, deleted."""
    admin = AdminClient({"bootstrap.servers": address})
    listed = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    if listed.errors or group not in [found.group_id for found in listed.valid]:
        sys.exit(f"{group} is not listed: {listed.valid} {listed.errors}")
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
    if described.state != ck.ConsumerGroupState.EMPTY or described.members:
        sys.exit(f"{group} is not empty: {described.state} {described.members}")
    wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 1, 5)])
    altered = admin.alter_consumer_group_offsets([wanted])[group].result(PATIENCE)
    asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 1)])
    found = admin.list_consumer_group_offsets([asked])[group].result(PATIENCE)
    if [part.offset for part in found.topic_partitions] != [5]:
        sys.exit(f"{topic} [1] was set to 5: {altered.topic_partitions} {found.topic_partitions}")
    admin.delete_consumer_groups([group])[group].result(PATIENCE)
    listed = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    if group in [found.group_id for found in listed.valid]:
        sys.exit(f"{group} is listed after it was deleted")


if __name__ == "__main__":
    steps = (version, create, produce, consume, fetch, committed, offsets, refusals,
             groups)
    {step.__name__: step for step in steps}[sys.argv[1]](*sys.argv[2:])
