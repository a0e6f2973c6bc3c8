"""aiokafka's adapter; tests/clients/client.py has the contract."""
import asyncio
import json
import signal
import sys

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

PATIENCE = 60


async def version():
    print(aiokafka.__version__)


async def create(address, topic, partitions):
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(topic, int(partitions), 1)])
    await admin.close()


async def produce(address, topic, codec, mode):
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address, acks="all", linger_ms=5, request_timeout_ms=PATIENCE * 1000,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=mode == "idempotent")
    await producer.start()
    futures = []
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        key, value, headers = json.loads(line)
        headers = [(name, text.encode()) for name, text in headers]
        futures.append(await producer.send(topic, value.encode(), key.encode(), headers=headers))
    for future in futures:
        await asyncio.wait_for(future, PATIENCE)
    await producer.stop()


def show(message):
    headers = [(name, text.decode()) for name, text in message.headers]
    print(json.dumps([message.partition, message.offset, message.timestamp,
                      message.key.decode(), message.value.decode(), headers]))


async def consumer_of(address, group=None, topics=()):
    consumer = aiokafka.AIOKafkaConsumer(
        *topics, bootstrap_servers=address, group_id=group, enable_auto_commit=False,
        auto_offset_reset="earliest", check_crcs=True)
    await consumer.start()
    return consumer


async def consume(address, group, topic):
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = await consumer_of(address, group, [topic])
    while not stopping.is_set():
        polled = await consumer.getmany(timeout_ms=200)
        for messages in polled.values():
            for message in messages:
                show(message)
        sys.stdout.flush()
        if polled:
            try:
                await consumer.commit()
            except KafkaError as error:  # a rebalance or no broker: the next one commits
                print(repr(error), file=sys.stderr, flush=True)
    await consumer.stop()


async def fetch(address, topic, ends):
    consumer = await consumer_of(address)
    left = {aiokafka.TopicPartition(topic, int(number)): end
            for number, end in json.loads(ends).items() if end}
    consumer.assign(list(left))
    await consumer.seek_to_beginning()
    while left:
        polled = await consumer.getmany(timeout_ms=PATIENCE * 1000)
        if not polled:
            sys.exit(f"nothing for {PATIENCE} s, {left} open")
        for partition, messages in polled.items():
            for message in messages:
                show(message)
                if message.offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
    await consumer.stop()


def partitions_of(consumer, topic):
    return [aiokafka.TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic))]


async def committed(address, group, topic):
    """Asked by the admin client: a consumer that was given no partitions does not ask."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    found = await admin.list_consumer_group_offsets(group)
    print(json.dumps({part.partition: at.offset for part, at in found.items()
                      if part.topic == topic}))
    await admin.close()


async def offsets(address, topic, timestamp):
    consumer = await consumer_of(address, topics=[topic])
    parts = partitions_of(consumer, topic)
    times = await consumer.offsets_for_times({part: int(timestamp) for part in parts})
    found = [await consumer.beginning_offsets(parts), await consumer.end_offsets(parts),
             {part: at.offset if at else -1 for part, at in times.items()}]
    print(json.dumps([{part.partition: offset for part, offset in row.items()} for row in found]))
    await consumer.stop()


if __name__ == "__main__":
    steps = (version, create, produce, consume, fetch, committed, offsets)
    asyncio.run({step.__name__: step for step in steps}[sys.argv[1]](*sys.argv[2:]))
