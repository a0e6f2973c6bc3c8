"""Where tables come from: one made by hand, without a broker, and topics of a broker.

Both say which rows there should be, and change between looks: `changes` are steps, each of which
may add rows, take some away, or only store them in other files.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import wire
from broker import Broker
from readers import Reader, kafka
from rows import parse

READY_WITHIN = 30
PARTITIONS = 3


class Made:
    """The example `tables` (serve.rs) with its one topic."""
    topic, unknown_to_kafka = "made", ()
    changes = ["append 0,2 1000", "append 0,1 500", "merge", "append 1 2500", "compact",
               "append 2 1", "drop"]

    def __init__(self, program, directory):
        self.child = subprocess.Popen([program, os.path.join(directory, "made")], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.catalogue = f"http://{self.child.stdout.readline().split('http=')[1].strip()}/iceberg"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(READY_WITHIN)
        self.child.stdout.close()

    def ask(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        lines = []
        while (line := self.child.stdout.readline().strip()) != "done":
            if not line:
                raise RuntimeError(f"the table's program ended at {command}")
            lines.append(line)
        return lines

    def change(self, step):
        self.ask(step)

    def rows(self):
        return parse("\n".join(self.ask("rows")))


class Live:
    """A broker whose table files are small, so that they are merged while readers look."""
    topic = "lava"
    # Everything a Kafka client cannot know: the broker's clock at the append.
    unknown_to_kafka = (5,)
    settings = ["hot.bytes=0", "hot.ms=0", "table.commit.bytes=64KiB", "table.commit.ms=200ms",
                "table.file.max.bytes=8MiB", "log.segment.bytes=1MiB",
                "log.segment.initial.bytes=1MiB", "log.inline.max.bytes=256KiB"]
    changes = [f"{codec} 1500" for codec in ("none", "gzip", "snappy", "lz4", "zstd")]

    def __init__(self, binary, directory):
        self.directory, self.sent = directory, 0
        more = ["--http", "127.0.0.1:0", "--pg", "127.0.0.1:0"]
        for setting in self.settings:
            more += ["--set", setting]
        self.broker = Broker(binary, os.path.join(directory, "data"), more)
        self.client = None

    def __enter__(self):
        self.broker.start()
        wire.create(self.broker.address, self.topic, PARTITIONS)
        self.client = Reader("kafka_client.py", kafka, self.broker.address, self.directory)
        self.client.__enter__()
        return self

    def __exit__(self, *reason):
        if self.client:
            self.client.__exit__(*reason)
        self.broker.__exit__(*reason)

    def place(self, door):
        """The address of a door, as the broker's ready line has it."""
        words = dict(word.split("=", 1) for word in self.broker.ready_line.split() if "=" in word)
        return words[door]

    @property
    def catalogue(self):
        return f"http://{self.place('http')}/iceberg"

    def change(self, step):
        codec, count = step.split()
        self.client.ask("produce", self.topic, codec, self.sent, count)
        self.sent += int(count)
        # Loads within a second of one another share the work: what they show may be that old.
        time.sleep(1.1)

    def rows(self):
        ends = wire.offsets(self.broker.address, self.topic)
        lines = self.client.ask("rows", self.topic, json.dumps(ends).replace(" ", ""))
        return parse("\n".join(lines))
