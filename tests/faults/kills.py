"""Kills: at any time, while the broker starts, and at each step that it makes in its directory.

The steps are told by inotify: a file of a kind (table file, manifest, checkpoint, index, segment)
was made, written to its end, renamed or removed. Some microseconds later the process is gone.
"""
import ctypes
import os
import re
import select
import struct
import subprocess
import threading
import time

from trial import HERE, SMALL, passes, scenario

READY_WITHIN = 2.0
# inotify(7)
CREATE, CLOSE_WRITE, MOVED_TO, DELETE, IS_DIR = 0x100, 0x8, 0x80, 0x200, 0x40000000
STEPS = {CREATE: "made", CLOSE_WRITE: "written", MOVED_TO: "renamed", DELETE: "removed"}
KINDS = [("table file", r"\.parquet"), ("manifest", r"^(delta|snapshot|base|manifest)"),
         ("checkpoint", r"^checkpoint"), ("index", r"\.idx"), ("segment", r"\.seg"),
         ("side file", r"\.(side|batch|large)"), ("reserve", r"^reserve")]


@scenario("checker", 60, 60)
def checker(trial):
    """the judge's own test: faults planted in a history that is made up are told by their names"""
    return trial.command(HERE / "checker.py", "--selftest", seconds=50)[-1]


@scenario("kill", 1500, 180)
def kill(trial):
    """kill -9 under load every few seconds (kill.py): idempotent, plain, with commits, with tables;
    nothing acknowledged lost, nothing twice, ready in 2 s"""
    seconds, every = trial.pick((8, 2), (180, 3.5))
    lines = trial.command(HERE / "kill.py", "--seconds", seconds, "--every", every, "--binary",
                          trial.binary, seconds=4 * (seconds * 3 + 300))
    return "; ".join(" ".join(line.split()) for line in lines if line.startswith("kill "))


@scenario("recovery", 900, 90)
def recovery(trial):
    """kill -9 while the broker starts, under load; then as `kill`"""
    times, ready = trial.pick(8, 100), []
    with trial.broker(SMALL) as broker:
        load = trial.workload(broker, consumers=2, commits=True).start()
        load.await_acknowledged(200, 30)
        typical = broker.ready_seconds
        for _ in range(times):
            broker.kill()
            for _ in range(trial.chance.randint(1, 3)):
                starting = subprocess.Popen(
                    [broker.binary, "serve", "--data-dir", broker.data, "--listen",
                     broker.address, "--http", "127.0.0.1:0", "--pg", "127.0.0.1:0",
                     *broker.arguments], stdout=subprocess.DEVNULL, stderr=broker.said)
                time.sleep(trial.chance.uniform(0, 1.2 * typical))
                starting.kill()
                starting.wait()
            broker.start()
            ready.append(broker.ready_seconds)
            load.await_acknowledged(20, 30)
        figures = passes(load, broker, tables=True)
        broker.ends_well()
    if max(ready) > READY_WITHIN:
        raise AssertionError(f"ready after {max(ready):.2f} s; {READY_WITHIN} s are allowed")
    return f"{times} rounds, ready after at most {max(ready):.2f} s, {figures}"


class Watch:
    """What happens to the files below a directory, as (kind, step)."""

    def __init__(self, top):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.paths = {}
        for folder, _, _ in os.walk(top):
            self.add(folder)

    def add(self, folder):
        mask = CREATE | CLOSE_WRITE | MOVED_TO | DELETE
        number = self.libc.inotify_add_watch(self.fd, os.fsencode(folder), mask)
        self.paths[number] = folder

    def close(self):
        os.close(self.fd)

    def steps(self, seconds):
        """The steps of the next event, or none in that time."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return []
        data, at, found = os.read(self.fd, 65536), 0, []
        while at < len(data):
            number, mask, _, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16:at + 16 + length].rstrip(b"\0").decode()
            at += 16 + length
            if mask & IS_DIR and mask & CREATE:
                self.add(os.path.join(self.paths[number], name))
                continue
            kind = next((kind for kind, looks in KINDS if re.search(looks, name)), None)
            step = next((word for bit, word in STEPS.items() if mask & bit), None)
            if kind and step:
                temporary = " temporary" if "tmp" in name or name.endswith(".new") else ""
                found.append((kind + temporary, step))
        return found


class Keyed(threading.Thread):
    """Counts up under some keys of a compacted topic; what is kept of a key is its newest."""
    KEYS = 40

    def __init__(self, broker):
        import confluent_kafka as ck
        from confluent_kafka.admin import AdminClient, NewTopic
        super().__init__(daemon=True)
        self.ck, self.address, self.topic = ck, broker.address, "keyed"
        self.ended, self.acknowledged, self.failed, self.sent = threading.Event(), {}, [], 0
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(self.topic, 1, 1, config=config)])[self.topic].result(30)
        self.producer = ck.Producer({
            "bootstrap.servers": broker.address, "acks": "all", "enable.idempotence": True,
            "log_level": 0, "reconnect.backoff.max.ms": 300, "message.timeout.ms": 120000})

    def run(self):
        while not self.ended.wait(0.005):
            number, key = self.sent, self.sent % self.KEYS
            self.sent += 1

            def done(error, _, number=number, key=key):
                if error:
                    self.failed.append(error)
                else:
                    self.acknowledged[key] = max(number, self.acknowledged.get(key, -1))

            self.producer.produce(self.topic, b"%d" % number + bytes(300), b"%d" % key,
                                  on_delivery=done)
            self.producer.poll(0)
        self.producer.flush(120)

    def finish(self):
        """Ends it; the figures."""
        self.ended.set()
        self.join()
        ck, last, count = self.ck, {}, 0
        consumer = ck.Consumer({"bootstrap.servers": self.address, "group.id": "none",
                                "enable.partition.eof": True, "enable.auto.commit": False,
                                "auto.offset.reset": "error", "log_level": 0})
        consumer.assign([ck.TopicPartition(self.topic, 0, ck.OFFSET_BEGINNING)])
        while (message := consumer.poll(30)) is not None and not message.error():
            key, number = int(message.key()), int(message.value().rstrip(b"\0"))
            count += 1
            if number <= last.get(key, -1):
                raise AssertionError(f"key {key}: {number} behind {last[key]}")
            last[key] = number
        if message is None or message.error().code() != ck.KafkaError._PARTITION_EOF:
            raise AssertionError(f"compacted: {message and message.error()} after {count} records")
        consumer.close()
        lost = {key: number for key, number in self.acknowledged.items()
                if last.get(key, -1) < number}
        if lost or self.failed:
            raise AssertionError(f"compacted: the newest of {lost} is lost, {self.failed[:3]}")
        return f"compacted: {self.sent} sent, {count} kept"


@scenario("steps", 1500, 150)
def steps(trial):
    """kill -9 at each step of writing, merging, compacting, dropping table files, of checkpoints,
    indexes and segments, all of them small; then as `kill`, and SQL has the rows of the log"""
    times, ready, done = trial.pick(1, 12), [], {}
    with trial.broker(SMALL) as broker:
        load = trial.workload(broker, producers=3, rate=400, consumers=1, commits=True).start()
        keyed = Keyed(broker)
        keyed.start()
        load.await_acknowledged(500, 30)
        wanted = seen_steps(broker, trial.pick(4, 10))
        needed = {("table file", "made"), ("table file", "removed"), ("segment", "made"),
                  ("segment", "removed"), ("checkpoint", "made")}
        lacking = {(kind, step) for kind, step in needed
                   if not any(found[0].startswith(kind) for found in wanted)}
        if lacking:
            raise AssertionError(f"the load does not bring about {sorted(lacking)}")
        for step in sorted(wanted) * times:
            if kill_at(broker, step, trial.chance.choice([0, 0, 0.0005, 0.003])):
                done[step] = done.get(step, 0) + 1
            broker.start()
            ready.append(broker.ready_seconds)
            load.await_acknowledged(20, 30)
        figures = f"{passes(load, broker, tables=True)}; {keyed.finish()}"
        broker.ends_well()
    never = sorted(wanted - set(done))
    if len(never) > len(wanted) // 4:
        raise AssertionError(f"these steps did not come again: {never}")
    if max(ready) > READY_WITHIN:
        raise AssertionError(f"ready after {max(ready):.2f} s; {READY_WITHIN} s are allowed")
    return f"{sum(done.values())} kills at {len(done)} kinds of steps, ready after at most " \
           f"{max(ready):.2f} s, {figures}"


def seen_steps(broker, seconds):
    watch, found, end = Watch(broker.data), set(), time.monotonic() + seconds
    while time.monotonic() < end:
        found.update(watch.steps(0.1))
    watch.close()
    return found


def kill_at(broker, step, delay):
    """Whether the step came; it is killed either way."""
    watch, end = Watch(broker.data), time.monotonic() + 10
    came = False
    while not came and time.monotonic() < end:
        came = step in watch.steps(0.5)
    if came and delay:
        time.sleep(delay)
    broker.kill()
    watch.close()
    return came
