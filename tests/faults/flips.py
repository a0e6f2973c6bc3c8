"""Flipped bits: in any file of a stopped data directory, one at a time.

A directory is filled and its log read once, so that each offset's record is known. For each flip a
copy is started. The broker then either refuses and names the file, after which `basalt log salvage`
makes a directory that starts; or it starts, and each record that it serves is the one that was
there. What is missing has to be told: by the answer to a fetch or by the broker's own words.
"""
import collections
import os
import pathlib
import shutil
import subprocess

from trial import SMALL, scenario, until

PARTITIONS = 2
TOPICS = ("raw", "tabled")
KINDS = ("parquet", "manifest", "checkpoint", "idx", "seg", "other")
# Two cores and tables for one topic's sake; then a second start that keeps the rest as log.
LATER = ["hot.bytes=1GiB", "hot.ms=1h", "table.commit.bytes=1GiB", "table.commit.ms=1h",
         "log.segment.bytes=1MiB", "log.segment.initial.bytes=256KiB",
         "log.inline.max.bytes=256KiB"]


def kind_of(path):
    name = os.path.basename(path)
    if os.path.basename(os.path.dirname(path)) == "manifest":
        return "manifest"
    return next((kind for kind in ("parquet", "idx", "seg", "checkpoint") if kind in name), "other")


def fill(trial):
    """A stopped directory with everything in it, and (topic, partition, offset): (key, value)."""
    import confluent_kafka as ck
    truth, failed = {}, []

    def write(broker, topic, count):
        producer = ck.Producer({"bootstrap.servers": broker.address, "acks": "all",
                                "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
        for _ in range(count):
            key, value = trial.chance.randbytes(8), trial.chance.randbytes(400)

            def done(error, message, key=key, value=value):
                if error:
                    failed.append(error)
                else:
                    truth[topic, message.partition(), message.offset()] = key, value

            producer.produce(topic, value, key, on_delivery=done,
                             partition=trial.chance.randrange(PARTITIONS))
            producer.poll(0)
            if len(producer) > 100:
                producer.flush(30)
        producer.flush(30)

    settings = [f"num.partitions={PARTITIONS}"]
    with trial.broker(SMALL + settings) as broker:
        write(broker, "tabled", 4000)
        tables = pathlib.Path(broker.data, "tables")
        until(lambda: len(list(tables.glob("*/data/*.parquet"))) > 1, 30, "table files are written")
        broker.ends_well()
    with trial.broker(LATER + settings) as broker:
        write(broker, "raw", 2500)
        write(broker, "tabled", 500)
        broker.ends_well()
    if failed:
        raise AssertionError(f"writes failed: {failed[:3]}")
    return truth


def read(broker, truth):
    """How many records are served as they were, what is served wrong, what the client was told."""
    import confluent_kafka as ck
    told = collections.Counter()
    consumer = ck.Consumer({"bootstrap.servers": broker.address, "group.id": "none",
                            "enable.auto.commit": False, "enable.partition.eof": True,
                            "auto.offset.reset": "error", "check.crcs": True, "log_level": 0,
                            "fetch.error.backoff.ms": 50, "fetch.wait.max.ms": 50})
    open_places = {(topic, number) for topic in TOPICS for number in range(PARTITIONS)}
    consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING)
                     for topic, number in open_places])
    right, wrong, seen, silent = 0, [], set(), 0
    while open_places and silent < 4:
        message = consumer.poll(0.5)
        if message is None:
            silent += 1
        elif not message.error():
            silent = 0
            place = message.topic(), message.partition(), message.offset()
            if truth.get(place) == (message.key(), message.value()) and place not in seen:
                right += 1
            else:
                wrong.append(place)
            seen.add(place)
        elif message.error().code() == ck.KafkaError._PARTITION_EOF:
            open_places.discard((message.topic(), message.partition()))
        else:
            told[message.error().name()] += 1
            if sum(told.values()) > 40:
                break
    consumer.close()
    if open_places:
        told["no answer"] += len(open_places)
    return right, wrong, told


class Flip:
    """One flipped bit and what came of it."""

    def __init__(self, trial, files, sizes):
        self.trial = trial
        kinds = [kind for kind in KINDS if files[kind]]
        self.kind = trial.chance.choice(kinds)
        self.file = trial.chance.choice(files[self.kind])
        self.bit = trial.chance.randrange(sizes[self.file] * 8)

    def __str__(self):
        return f"bit {self.bit} ({self.bit // 8}.{self.bit % 8}) of {self.file}"

    def make(self, source, target):
        shutil.rmtree(target, ignore_errors=True)
        # Not read and written: holes stay holes.
        subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
        with open(os.path.join(target, self.file), "r+b") as file:
            file.seek(self.bit // 8)
            byte = file.read(1)[0]
            file.seek(self.bit // 8)
            file.write(bytes([byte ^ 1 << self.bit % 8]))

    def names_it(self, said):
        """The file itself, or for a directory of one log what lies in it."""
        return os.path.basename(self.file) in said or self.file in said

    def judge(self, target, truth):
        """"harmless", "told" or "refused"."""
        broker = self.trial.broker(LATER, data=target)
        try:
            try:
                broker.start()
            except RuntimeError:
                return self.refused(broker, target, truth)
            right, wrong, told = read(broker, truth)
            said = broker.all_said()
            broker.running()
            broker.check_said()
            if wrong:
                raise AssertionError(f"{self}: {len(wrong)} records served that were never "
                                     f"written there, {wrong[:3]}")
            if right < len(truth):
                if not told and not self.names_it(said):
                    raise AssertionError(f"{self}: {len(truth) - right} records are missing and "
                                         f"nobody says so\n{said[-1500:]}")
                return "told"
            return "told" if told or self.names_it(said) else "harmless"
        finally:
            broker.kill()
            broker.said.close()
            self.trial.brokers.remove(broker)

    def refused(self, broker, target, truth):
        """It names the file; after `log salvage` it starts and serves nothing wrong."""
        said = broker.all_said()
        if "panicked" in said or not self.names_it(said):
            raise AssertionError(f"{self}: refused without its name\n{said[-1500:]}")
        if "salvage" in said:
            done = subprocess.run([broker.binary, "log", "salvage", target], capture_output=True,
                                  text=True, timeout=60)
            if done.returncode != 0:
                raise AssertionError(f"{self}: salvage ended with {done.returncode}\n"
                                     f"{done.stderr[-1500:]}")
            try:
                broker.start()
            except RuntimeError as error:
                raise AssertionError(f"{self}: does not start after salvage\n{error}") from error
            _, wrong, _ = read(broker, truth)
            broker.check_said()
            if wrong:
                raise AssertionError(f"{self}: {len(wrong)} wrong records after salvage, "
                                     f"{wrong[:3]}")
        return "refused"


@scenario("flips", 3600, 240)
def flips(trial):
    """1,000 random bit flips (short 40) in any file of a stopped data directory: each is refused
    by the file's name, told, or harmless; 0 wrong bytes served"""
    truth = fill(trial)
    source, target = trial.path("data"), trial.path("flipped")
    files, sizes = collections.defaultdict(list), {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), source)
            sizes[path] = os.path.getsize(os.path.join(folder, name))
            # The lock holds a process id that nobody reads, the reserve is empty on purpose.
            if sizes[path] and name not in ("lock", "reserve"):
                files[kind_of(path)].append(path)
    for paths in files.values():
        paths.sort()
    lacking = [kind for kind in KINDS if not files[kind]]
    if lacking:
        raise AssertionError(f"no files of {lacking} in the directory")
    outcomes, failures = collections.Counter(), []
    for _ in range(trial.pick(40, 1000)):
        flip = Flip(trial, files, sizes)
        flip.make(source, target)
        try:
            outcomes[f"{flip.kind} {flip.judge(target, truth)}"] += 1
        except AssertionError as failure:
            outcomes[f"{flip.kind} WRONG"] += 1
            failures.append(str(failure))
    told = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
    if failures:
        shown = "\n".join(failures[:5])
        raise AssertionError(f"{len(failures)} of {sum(outcomes.values())} flips: {told}\n{shown}")
    return f"{sum(outcomes.values())} flips over {len(truth)} records: {told}; 0 wrong"
