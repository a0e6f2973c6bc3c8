"""Programs taken as they are: kcat, and Apache Kafka's own tools. Each class turns the steps of the
scenario into their command lines and reads what they print.
"""
import json
import os
import re

import installs
import wire
from client import Client
from processes import Process, Producer, run
from records import Delivery, Record, Wrong, make_records


class Kcat(Client):
    """Debian's kcat. One run sets the same headers for all its records."""
    headers = [("twice", "a"), ("twice", "b"), ("source", "basalt")]
    is_idempotent = False

    def __init__(self, name):
        self.name = name

    def prepare(self):
        installs.apt("kcat", "kcat")
        text = run(["kcat", "-V"])
        version = text.split("Version ")[1].split(" ")[0]
        library = text.split("librdkafka ")[1].split(" ")[0]
        return f"{version} (librdkafka {library})"

    def create(self, address, topic, partitions):
        wire.create(address, topic, partitions)

    def records(self, phase, first, count):
        return [Record(record.key, record.value, self.headers)
                for record in make_records(first, count)]

    def lines(self, sent):
        return "".join(f"{record.key}\t{record.value}\n" for record in sent)

    def producer(self, play, codec, phase, count):
        headers = [word for key, value in self.headers for word in ("-H", f"{key}={value}")]
        command = ["kcat", "-b", play.broker.address, "-P", "-E", "-t", play.topic, "-z", codec,
                   "-K", "\t", "-X", "max.in.flight.requests.per.connection=1", *headers]
        return Producer(f"produce-{phase}-{codec}", (command, {}), play.directory)

    def consumer(self, address, group, topic, directory):
        return ["kcat", "-b", address, "-G", group, "-E", "-u", "-J", "-X",
                "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=200", topic], {}

    def delivery(self, line):
        message = json.loads(line)
        flat = message["headers"]
        record = Record(message["key"], message["payload"], list(zip(flat[::2], flat[1::2])))
        return Delivery(message["partition"], message["offset"], record, message["ts"])

    def fetch(self, address, topic, ends):
        """Ends by itself at the ends, which `-e` is for."""
        text = run(["kcat", "-b", address, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
        return [self.delivery(line) for line in text.splitlines()]

    def committed(self, address, group, topic):
        return None

    def offsets(self, address, topic, timestamp):
        partitions = sorted(wire.offsets(address, topic))
        found = []
        for when in (wire.EARLIEST, wire.LATEST, timestamp):
            asked = [word for number in partitions for word in ("-t", f"{topic}:{number}:{when}")]
            text = run(["kcat", "-b", address, "-Q", *asked])
            found.append({int(number): int(offset) for number, offset
                          in re.findall(r"\[(\d+)\] offset (-?\d+)", text)})
        return found

    def more(self, play):
        """A topic comes by itself with the first record, and is listed."""
        address, topic = play.broker.address, f"{self.name}-by-itself"
        run(["kcat", "-b", address, "-P", "-t", topic], "first\n")
        text = run(["kcat", "-b", address, "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
        if text != "first\n":
            raise Wrong(f"a topic that came by itself holds {text!r}")
        listed = run(["kcat", "-b", address, "-L"])
        if f'topic "{topic}" with ' not in listed:
            raise Wrong(f"{topic} is not listed: {listed}")


class Java(Client):
    """What both pairs of Apache Kafka's tools share."""
    leave_statuses = (0, 143)
    properties = {"auto.commit.interval.ms": "200"}

    def __init__(self, name, version):
        self.name, self.pinned, self.java = name, version, None
        # 4.2 gave some options other names and complains, on standard output, about the old ones.
        self.is_renamed = tuple(map(int, version.split("."))) >= (4, 2)

    def prepare(self):
        self.java = installs.java("kafka-tools", self.pinned)
        return f"{self.pinned} ({run(['java', '--version']).splitlines()[0]})"

    def command(self, name, *words):
        return [*self.java, f"org.apache.kafka.tools.{name}", *map(str, words)]

    def tool(self, name, *words):
        return run(self.command(name, *words))

    def config(self, old):
        return "--command-config" if self.is_renamed else old

    def printed(self):
        option = "--formatter-property" if self.is_renamed else "--property"
        return [word for part in ("partition", "offset", "timestamp", "headers", "key")
                for word in (option, f"print.{part}=true")]

    def file(self, directory, name, values):
        path = os.path.join(directory, name)
        with open(path, "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in values.items())
        return path

    def create(self, address, topic, partitions):
        self.tool("TopicCommand", "--bootstrap-server", address, "--create", "--topic", topic,
                  "--partitions", partitions, "--replication-factor", 1)

    def fetch(self, address, topic, ends):
        found = []
        for partition, end in ends.items():
            text = self.tool("consumer.ConsoleConsumer", "--bootstrap-server", address,
                             "--topic", topic, "--partition", partition, "--offset", "earliest",
                             "--max-messages", end, "--timeout-ms", 30000, *self.printed())
            found += [console_delivery(line) for line in text.splitlines()]
        return found

    def committed(self, address, group, topic):
        """By kafka-consumer-groups, whose lag has to be 0 at the end."""
        text = self.tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", address,
                         "--group", group, "--describe", "--offsets")
        found = {}
        for line in text.splitlines():
            words = line.split()
            if words[:2] == [group, topic]:
                partition, offset, end, lag = map(int, words[2:6])
                if (end, lag) != (offset, 0):
                    raise Wrong(f"kafka-consumer-groups: {line}")
                found[partition] = offset
        return found

    def offsets(self, address, topic, timestamp):
        found = []
        for when in (wire.EARLIEST, wire.LATEST, timestamp):
            text = self.tool("GetOffsetShell", "--bootstrap-server", address, "--topic", topic,
                             "--time", when)
            rows = [line.rsplit(":", 2) for line in text.splitlines()]
            found.append({int(partition): int(offset or -1) for _, partition, offset in rows})
        return found

    def more(self, play):
        """The group, being empty, is shown so, can be set back, listed and deleted."""
        def groups(*words):
            return self.tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server",
                             play.broker.address, *words)
        group = ["--group", play.group]
        state = groups(*group, "--describe", "--state")
        if "Empty" not in state:
            raise Wrong(f"kafka-consumer-groups does not show {play.group} as empty: {state!r}")
        groups(*group, "--topic", play.topic, "--reset-offsets", "--to-earliest", "--execute")
        play.same("committed offsets after kafka-consumer-groups set them back", {0: 0, 1: 0, 2: 0},
                  wire.committed(play.broker.address, play.group, play.topic, 3))
        if play.group not in groups("--list").split():
            raise Wrong(f"kafka-consumer-groups does not list {play.group}")
        groups(*group, "--delete")
        if play.group in groups("--list").split():
            raise Wrong(f"{play.group} is there after it was deleted")


def console_delivery(line):
    """CreateTime:1700000000000 Partition:0 Offset:5 name:text,… key value, with tabs between."""
    time, partition, offset, headers, key, value = line.rstrip("\n").split("\t")
    headers = [] if headers == "NO_HEADERS" else \
        [tuple(header.split(":", 1)) for header in headers.split(",")]
    number = [int(text.split(":")[1]) for text in (time, partition, offset)]
    return Delivery(number[1], number[2], Record(key, value, headers), number[0])


class ConsoleTools(Java):
    """kafka-console-producer, kafka-console-consumer."""

    def lines(self, sent):
        return "".join(",".join(f"{key}:{value}" for key, value in record.headers)
                       + f"\t{record.key}\t{record.value}\n" for record in sent)

    def producer(self, play, codec, phase, count):
        option = "--reader-property" if self.is_renamed else "--property"
        command = self.command("ConsoleProducer", "--bootstrap-server", play.broker.address,
                               "--topic", play.topic, "--compression-codec", codec,
                               option, "parse.key=true", option, "parse.headers=true",
                               "--message-send-max-retries", 1000)
        return Producer(f"produce-{phase}-{codec}", (command, {}), play.directory)

    def consumer(self, address, group, topic, directory):
        config = self.file(directory, "consumer.properties", self.properties)
        return self.command("consumer.ConsoleConsumer", "--bootstrap-server", address,
                            "--topic", topic, "--group", group, "--from-beginning",
                            self.config("--consumer.config"), config, *self.printed()), {}

    def delivery(self, line):
        return console_delivery(line)


class Verifiable(Process):
    """A producer that makes its records itself."""

    def feed(self, text):
        pass

    def finish(self, seconds=120):
        self.wait(seconds)


class VerifiableTools(Java):
    """kafka-verifiable-producer, kafka-verifiable-consumer: no headers, values made by themselves,
    a commit after each poll. The console consumer reads by assignment. By itself this producer
    never tries again, which loses what is under way when a broker dies: it is told to."""

    def records(self, phase, first, count):
        return [Record(str(number % 97), f"{phase}.{number}", []) for number in range(count)]

    def lines(self, sent):
        return ""

    def producer(self, play, codec, phase, count):
        config = self.file(play.directory, f"producer-{codec}.properties",
                           {"compression.type": codec, "linger.ms": "5",
                            "enable.idempotence": "true", "retries": "100000"})
        command = self.command("VerifiableProducer", "--bootstrap-server", play.broker.address,
                               "--topic", play.topic, "--max-messages", count,
                               "--throughput", 400, "--value-prefix", phase,
                               "--repeating-keys", 97, self.config("--producer.config"), config)
        output = open(os.path.join(play.directory, f"produce-{phase}.out"), "wb")
        with output:
            return Verifiable(f"produce-{phase}-{codec}", (command, {}), play.directory,
                              stdout=output)

    def consumer(self, address, group, topic, directory):
        return self.command("VerifiableConsumer", "--bootstrap-server", address, "--topic", topic,
                            "--group-id", group, "--verbose"), {}

    def delivery(self, line):
        event = json.loads(line)
        if event["name"] != "record_data":
            return None
        return Delivery(event["partition"], event["offset"],
                        Record(event["key"], event["value"], None))
