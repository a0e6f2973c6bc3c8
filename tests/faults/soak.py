"""Everything at once for a while: what the broker uses must stay where it was."""
import os
import signal
import subprocess
import sys
import time

from trial import HERE, SMALL, passes, scenario


def used(broker):
    """Anonymous memory, open files, bytes on disk."""
    disk = 0
    for folder, _, names in os.walk(broker.data):
        for name in names:
            try:
                disk += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return broker.anonymous_bytes(), broker.open_files(), disk


def disturb(trial, broker, counts):
    """One fault by the dice."""
    kind = trial.chance.choice(["stop", "flood", "nothing", "queries", "kill"])
    counts[kind] = counts.get(kind, 0) + 1
    if kind == "stop":
        os.kill(broker.pid(), signal.SIGSTOP)
        time.sleep(trial.chance.uniform(0.2, 2))
        os.kill(broker.pid(), signal.SIGCONT)
    elif kind == "flood":
        words = [sys.executable, HERE / "hostile.py", "--flood", "giant", broker.address, "100"]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
                       timeout=60)
    elif kind == "queries":
        broker.sql("SELECT count(*) AS n FROM kafka_topics.short_lived")
    elif kind == "kill":
        broker.kill_and_start()
    time.sleep(trial.chance.uniform(0.2, 1.5))


@scenario("soak", 2400, 240)
def soak(trial):
    """a random mix of kills, stops, floods and queries for 30 minutes (short: 60 s) on a topic that
    retention keeps small: memory, files, disk flat, nothing lost"""
    seconds, counts = trial.pick(60, 1800), {}
    settings = [*SMALL, "log.retention.bytes=1MiB"]
    with trial.broker(settings) as broker:
        churn = trial.workload(broker, producers=2, rate=150, consumers=1, commits=True)
        make_topics(broker, churn)
        churn.start()
        short = Churn(broker)
        marks, begun = [], time.monotonic()
        while time.monotonic() < begun + seconds:
            disturb(trial, broker, counts)
            short.write(trial.chance, 200)
            marks.append(used(broker))
        figures = passes(churn, broker)
        broker.ends_well()
    return f"{counts}, {flat(marks)}, {figures}"


def make_topics(broker, load):
    """The judged topic keeps everything; the other one does not."""
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": broker.address})
    kept = NewTopic(load.topic, load.partitions, 1, config={"retention.bytes": "-1"})
    small = NewTopic("short_lived", 3, 1)
    for made in admin.create_topics([kept, small]).values():
        made.result(30)
    load.create = False


class Churn:
    """Writes what retention soon drops."""

    def __init__(self, broker):
        import confluent_kafka as ck
        self.producer = ck.Producer({"bootstrap.servers": broker.address, "acks": "all",
                                     "log_level": 0, "reconnect.backoff.max.ms": 300})
        self.failed = []

    def write(self, chance, count):
        for _ in range(count):
            self.producer.produce("short_lived", chance.randbytes(2000),
                                  on_delivery=lambda error, _: error and self.failed.append(error))
        left = self.producer.flush(60)
        if left or self.failed:
            raise AssertionError(f"{left} writes without an answer, {self.failed[:3]}")


def flat(marks):
    """The last quarter of the time is held against the second one; the first warms up."""
    quarter = len(marks) // 4
    if quarter < 2:
        raise AssertionError(f"only {len(marks)} marks")
    told = []
    # The judged topic grows on disk by what is written, some hundred bytes a record.
    for place, name, share, more in ((0, "memory", 1.25, 16 << 20), (1, "files", 1.25, 64),
                                     (2, "disk", 1.5, 64 << 20)):
        early = max(mark[place] for mark in marks[quarter:2 * quarter])
        late = max(mark[place] for mark in marks[-quarter:])
        told.append(f"{name} {early} then {late}")
        if late > early * share + more:
            raise AssertionError(f"{name} grew from {early} to {late}")
    return ", ".join(told)
