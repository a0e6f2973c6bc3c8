// The adapter of kafkajs and of Confluent's client, which has nearly the same interface;
// tests/clients/client.py has the contract. The first word says which: kafkajs or confluent.
//
// Neither reads by assignment: `fetch` reads everything in a group of its own.
'use strict';

const fs = require('fs');

const PATIENCE = 60000;
const RETRY = { retries: 200, initialRetryTime: 100, maxRetryTime: 1000 };

function kafkajs(brokers) {
  const module = require('kafkajs');
  const Codecs = module.CompressionCodecs;
  const Types = module.CompressionTypes;
  Codecs[Types.Snappy] = require('kafkajs-snappy');
  const codecs = { none: Types.None, gzip: Types.GZIP, snappy: Types.Snappy };
  const kafka = new module.Kafka({ brokers, retry: RETRY, logLevel: module.logLevel.WARN });
  return {
    admin: () => kafka.admin(),
    producer: (codec, idempotent) => {
      const producer = kafka.producer({ idempotent, maxInFlightRequests: 1, retry: RETRY });
      return [producer, { acks: -1, compression: codecs[codec] }];
    },
    consumer: (groupId) => kafka.consumer({ groupId, retry: RETRY }),
    subscription: (topic) => ({ topics: [topic], fromBeginning: true }),
    running: { autoCommit: false },
    version: () => require('kafkajs/package.json').version,
  };
}

function confluent(brokers) {
  const module = require('@confluentinc/kafka-javascript');
  const kafka = new module.KafkaJS.Kafka({
    kafkaJS: { brokers, logLevel: module.KafkaJS.logLevel.WARN },
  });
  return {
    admin: () => kafka.admin(),
    producer: (codec, idempotent) => {
      const producer = kafka.producer({
        kafkaJS: { idempotent, acks: -1 }, 'compression.codec': codec, 'linger.ms': 5,
      });
      return [producer, {}];
    },
    consumer: (groupId) => kafka.consumer({
      kafkaJS: { groupId, fromBeginning: true, autoCommit: false },
    }),
    subscription: (topic) => ({ topics: [topic] }),
    running: {},
    version: () => {
      const own = require('@confluentinc/kafka-javascript/package.json').version;
      return `${own} (librdkafka ${module.librdkafkaVersion})`;
    },
  };
}

async function withAdmin(client, work) {
  const admin = client.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

function headersOf(pairs) {
  const headers = {};
  for (const [name, text] of pairs) {
    headers[name] = name in headers ? [].concat(headers[name], text) : text;
  }
  return headers;
}

function pairsOf(headers) {
  return Object.entries(headers || {}).flatMap(
    ([name, values]) => [].concat(values).map((value) => [name, value.toString()]));
}

// Written when it returns: a line comes before its commit, and none is lost at the exit, which
// process.stdout does not promise of a pipe.
function print(value) {
  let rest = Buffer.from(JSON.stringify(value) + '\n');
  while (rest.length > 0) {
    rest = rest.subarray(fs.writeSync(1, rest));
  }
}

function show(partition, message) {
  print([partition, Number(message.offset), Number(message.timestamp), message.key.toString(),
    message.value.toString(), pairsOf(message.headers)]);
}

async function produce(client, topic, codec, mode) {
  const [producer, options] = client.producer(codec, mode === 'idempotent');
  await producer.connect();
  let left = '';
  let messages = [];
  process.stdin.setEncoding('utf8');
  for await (const text of process.stdin) {
    const lines = (left + text).split('\n');
    left = lines.pop();
    messages.push(...lines.map((line) => {
      const [key, value, headers] = JSON.parse(line);
      return { key, value, headers: headersOf(headers) };
    }));
    while (messages.length > 0) {
      await producer.send({ topic, ...options, messages: messages.slice(0, 100) });
      messages = messages.slice(100);
    }
  }
  await producer.disconnect();
}

// Runs a consumer that prints what it gets; `after` follows each batch.
async function read(client, group, topic, after) {
  const consumer = client.consumer(group);
  await consumer.connect();
  await consumer.subscribe(client.subscription(topic));
  await consumer.run({
    ...client.running,
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) {
        show(batch.partition, message);
      }
      await after(consumer, batch.partition, Number(batch.lastOffset()) + 1);
    },
  });
  return consumer;
}

async function consume(client, group, topic) {
  const stopped = new Promise((resolve) => process.once('SIGTERM', resolve));
  const consumer = await read(client, group, topic, async (consumer, partition, next) => {
    try {
      await consumer.commitOffsets([{ topic, partition, offset: String(next) }]);
    } catch (error) { // a rebalance or no broker: the next one commits
      console.error(error);
    }
  });
  await stopped;
  await consumer.disconnect();
}

async function fetch(client, topic, ends) {
  const left = new Map(Object.entries(JSON.parse(ends)).filter(([, end]) => end > 0));
  let done;
  const finished = new Promise((resolve) => { done = resolve; });
  const late = setTimeout(() => {
    console.error(`nothing more for ${PATIENCE} ms`, left);
    process.exit(1);
  }, PATIENCE);
  const group = `fetch-${process.pid}-${Date.now()}`;
  const consumer = await read(client, group, topic, async (consumer, partition, next) => {
    if (next >= left.get(String(partition))) {
      left.delete(String(partition));
    }
    if (left.size === 0) {
      done();
    }
  });
  await finished;
  clearTimeout(late);
  await consumer.disconnect();
}

function byPartition(found, field) {
  return Object.fromEntries(found.map((part) => [part.partition, Number(part[field])]));
}

const STEPS = {
  version: async (client) => console.log(client.version()),
  create: (client, topic, partitions) => withAdmin(client, (admin) => admin.createTopics({
    topics: [{ topic, numPartitions: Number(partitions), replicationFactor: 1 }],
  })),
  produce,
  consume,
  fetch,
  committed: (client, group, topic) => withAdmin(client, async (admin) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    print(byPartition(found.partitions, 'offset'));
  }),
  offsets: (client, topic, timestamp) => withAdmin(client, async (admin) => {
    const bounds = await admin.fetchTopicOffsets(topic);
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp));
    print([byPartition(bounds, 'low'), byPartition(bounds, 'high'), byPartition(found, 'offset')]);
  }),
};

async function main([flavour, step, address, ...words]) {
  const make = { kafkajs, confluent }[flavour];
  await STEPS[step](make([address || '127.0.0.1:1']), ...words);
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
