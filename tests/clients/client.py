"""What the scenario asks of a client, and the clients that are an adapter: a small program in
adapters/, in the client's own language, that does one step for each run and prints lines of JSON.
"""
import json
import os

import records
from processes import Producer, run
from records import CODECS, Delivery, Record


class Client:
    """What the scenario asks of a client; `command` gives words and an environment."""
    codecs, leave_statuses = CODECS, (0,)
    has_groups, is_idempotent, repeats_headers = True, True, True

    def records(self, phase, first, count):
        """What the producer of a phase sends."""
        made = records.make_records(first, count)
        if not self.repeats_headers:
            for record in made:
                record.headers = sorted(dict(record.headers).items())
        return made

    def more(self, play):
        """What only this client can show, at the end."""


class Adapter(Client):
    """The steps of an adapter:

        version                            a line: its version
        create ADDRESS TOPIC PARTITIONS
        produce ADDRESS TOPIC CODEC MODE   MODE is plain or idempotent; [key, value, [[name, text],
                                           ...]] a line on standard input; ends well when all
                                           were acknowledged
        consume ADDRESS GROUP TOPIC        in a group, from the beginning; prints a line for each
                                           record, then commits; leaves the group at SIGTERM
        fetch ADDRESS TOPIC ENDS           from the beginning to {"partition": end, ...} without a
                                           group, the same lines
        committed ADDRESS GROUP TOPIC      {"partition": offset, ...}
        offsets ADDRESS TOPIC TIMESTAMP    three of those: firsts, ends, first at or after the time

    A line for a record: [partition, offset, timestamp, key, value, [[name, text], ...]].
    """

    def __init__(self, name, prepare, **differences):
        self.name, self.prepare_words = name, prepare
        self.words, self.environment = [], {}
        for field, value in differences.items():
            assert hasattr(self, field), field
            setattr(self, field, value)

    def prepare(self):
        """Installs the client; its version as itself tells it."""
        self.words, self.environment = self.prepare_words()
        return self.step("version").strip()

    def command(self, *words):
        return [*map(str, self.words), *map(str, words)], self.environment

    def step(self, *words):
        arguments, environment = self.command(*words)
        return run(arguments, env={**os.environ, **environment})

    def create(self, address, topic, partitions):
        self.step("create", address, topic, partitions)

    def producer(self, play, codec, phase, count):
        command = self.command("produce", play.broker.address, play.topic, codec,
                               "idempotent" if self.is_idempotent else "plain")
        return Producer(f"produce-{phase}-{codec}", command, play.directory)

    def lines(self, sent):
        return "".join(json.dumps(record.content()) + "\n" for record in sent)

    def consumer(self, address, group, topic, directory):
        return self.command("consume", address, group, topic)

    def delivery(self, line):
        partition, offset, timestamp, key, value, headers = json.loads(line)
        return Delivery(partition, offset,
                        Record(key, value, [tuple(header) for header in headers]), timestamp)

    def fetch(self, address, topic, ends):
        lines = self.step("fetch", address, topic, json.dumps(ends)).splitlines()
        return [self.delivery(line) for line in lines]

    def committed(self, address, group, topic):
        return by_partition(json.loads(self.step("committed", address, group, topic)))

    def offsets(self, address, topic, timestamp):
        return [by_partition(part)
                for part in json.loads(self.step("offsets", address, topic, timestamp))]


def by_partition(found):
    return {int(partition): offset for partition, offset in found.items()}


class Confluent(Adapter):
    """Other tests use its environment: `python` is its interpreter."""
    python = None

    def prepare(self):
        version = super().prepare()
        self.python = self.words[0]
        return version

    def more(self, play):
        self.step("refusals", play.broker.address, play.topic)
        self.step("groups", play.broker.address, play.group, play.topic)
