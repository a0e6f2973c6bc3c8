"""What the scenarios share: their table, a broker and its directory, what it uses of the machine.

A scenario is a function of a `Trial` under `@scenario`; it returns the figures of its line, raises
`NotRun` where its means are not to be had here, and anything else when the broker does not pass.
"""
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from broker import Broker  # noqa: E402
from checker import Workload  # noqa: E402
from records import NotRun  # noqa: E402

SCENARIOS = {}
# Everything small, so that files are written, merged and dropped, segments sealed, emptied and used
# again, checkpoints written all the time.
SMALL = [
    "hot.bytes=0", "hot.ms=0", "table.commit.bytes=64KiB", "table.commit.ms=200ms",
    "table.file.max.bytes=1MiB", "iceberg.reader.grace.ms=100ms",
    "log.retention.check.interval.ms=100ms", "log.segment.bytes=1MiB",
    "log.segment.initial.bytes=256KiB", "log.inline.max.bytes=256KiB"]
PYTHON = sys.executable


class Scenario:
    def __init__(self, work, name, seconds, short_seconds):
        self.work, self.name = work, name
        self.seconds, self.short_seconds = seconds, short_seconds
        self.meaning = " ".join(work.__doc__.split())


def scenario(name, seconds, short_seconds):
    """Adds a scenario; it is ended after so many seconds."""
    def add(work):
        SCENARIOS[name] = Scenario(work, name, seconds, short_seconds)
        return work
    return add


class Trial:
    """One run of one scenario."""

    def __init__(self, name, chosen, directory):
        self.name, self.short, self.binary = name, chosen.short, chosen.basalt
        self.seed = chosen.seed
        self.chance = random.Random(f"{chosen.seed} {name}")
        self.directory = directory
        self.brokers = []

    def pick(self, short, long):
        return short if self.short else long

    def path(self, name):
        return os.path.join(self.directory, name)

    def broker(self, settings=(), arguments=("--cores", "2"), data=None):
        """A broker that is started by `with`."""
        told = [word for setting in settings for word in ("--set", setting)]
        broker = Faulted(self.binary, data or self.path("data"), [*arguments, *told])
        self.brokers.append(broker)
        return broker

    def workload(self, broker, **more):
        return Workload(broker.address, seed=self.chance.getrandbits(32), **more)

    def say(self, text):
        print(f"    {text}", flush=True)

    def command(self, *words, seconds):
        """Another program of this directory, which judges itself; its last line. Where all it has
        to say is that it was not run, so is the scenario."""
        done = subprocess.run([PYTHON, *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds)
        lines = done.stdout.strip().splitlines() or ["it said nothing"]
        if done.returncode != 0:
            raise AssertionError("\n".join([f"ended with {done.returncode}", *lines[-25:]]))
        skipped = [line for line in lines if "NOT RUN" in line or " not run " in line]
        if skipped:
            raise NotRun(skipped[0])
        return lines


class Faulted(Broker):
    """A broker with what a scenario looks at."""

    def __exit__(self, kind, *_):
        """Threads that panicked are a failure, unless there is one already."""
        try:
            self.kill()
            if kind is None:
                self.check_said()
        finally:
            self.said.close()

    def pid(self):
        return self.process.pid

    def http(self):
        return next(word[5:] for word in self.ready_line.split() if word.startswith("http="))

    def all_said(self):
        self.said.flush()
        with open(self.said.name, errors="replace") as said:
            return said.read()

    def anonymous_bytes(self):
        """Memory that is not pages of files."""
        with open(f"/proc/{self.pid()}/status") as status:
            found = dict(line.split(":", 1) for line in status)
        return int(found["RssAnon"].split()[0]) * 1024

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def limit_files(self, count):
        """How many files the process may have open from now on; the limit before."""
        before = resource.prlimit(self.pid(), resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid(), resource.RLIMIT_NOFILE, (count, before[1]))
        return before[0]

    def sql(self, statement):
        """Rows as dictionaries."""
        request = urllib.request.Request(f"http://{self.http()}/sql", statement.encode(),
                                         {"Accept": "application/x-ndjson"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [json.loads(line) for line in answer.read().splitlines() if line]

    def running(self):
        if not self.is_running():
            raise AssertionError(f"the broker has gone\n{self.errors()}")

    def ends_well(self):
        """A clean stop, and no thread that panicked."""
        status = self.stop()
        if status != 0:
            raise AssertionError(f"a clean stop ended with {status}\n{self.errors()}")
        self.check_said()


def passes(load, broker, tables=False):
    """Ends a workload and demands that nothing is wrong; its figures."""
    findings = load.finish()
    if findings:
        told = "; ".join(f"{name}: {len(found)}, {found[:3]}" for name, found in findings.items())
        raise AssertionError(f"{told}\n{dict(load.errors)}\n{broker.errors()}")
    if load.acknowledged() < 100:
        raise AssertionError(f"only {load.acknowledged()} records acknowledged")
    if tables:
        rows_are_the_log(load, broker)
    return load.numbers(findings)


def rows_are_the_log(load, broker):
    """SQL has each offset once, and no others."""
    rows = broker.sql(f'SELECT kafka_partition AS p, kafka_offset AS o FROM "{load.topic}"')
    found = sorted((row["p"], row["o"]) for row in rows)
    wanted = sorted((partition, offset) for partition, records in load.history.final.items()
                    for offset, _ in records)
    if found != wanted:
        more = sorted(set(found) - set(wanted))[:5]
        less = sorted(set(wanted) - set(found))[:5]
        raise AssertionError(f"{len(found)} rows, {len(wanted)} records; rows only {more}, "
                             f"records only {less}")


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def until(condition, seconds, what):
    """Polls; how long it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() > begun + seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - begun


def scratch(parent=None):
    return tempfile.TemporaryDirectory(prefix="basalt-fault-", dir=parent)
