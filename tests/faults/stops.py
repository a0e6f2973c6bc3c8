"""The broker stands still for a while, or is given less memory than it would like."""
import os
import pathlib
import signal
import socket
import struct
import threading
import time

from records import NotRun
from trial import passes, scenario, until
from wire import many, text

MEMORY_LIMIT = 512 << 20


@scenario("stop", 900, 90)
def stop(trial):
    """SIGSTOP for 2 to 60 s, then SIGCONT, under load with a group that commits; nothing lost,
    nothing twice, the next acknowledgement within 5 s"""
    longest, times = trial.pick(8, 60), trial.pick(2, 8)
    stopped, back = 0, []
    with trial.broker(["group.initial.rebalance.delay.ms=100ms"]) as broker:
        load = trial.workload(broker, consumers=2, commits=True).start()
        load.await_acknowledged(300, 30)
        for _ in range(times):
            seconds = trial.chance.uniform(2, longest)
            stopped += seconds
            os.kill(broker.pid(), signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(broker.pid(), signal.SIGCONT)
            back.append(load.await_acknowledged(50, 30))
        figures = passes(load, broker)
        broker.ends_well()
    if max(back) > 5:
        raise AssertionError(f"the next acknowledgements came after {max(back):.1f} s")
    return f"{times} stops, {stopped:.0f} s in all, acknowledging again after at most " \
           f"{max(back):.2f} s, {figures}"


@scenario("clock", 300, 120)
def clock(trial):
    """the wall clock steps by an hour and by ten years, there and back (libfaketime), under load
    with a group that commits: nothing is deleted or expires early, nothing is lost"""
    library = next((str(path) for path in pathlib.Path("/usr/lib").glob(
        "**/faketime/libfaketime.so.1")), None)
    if not library:
        raise NotRun("no libfaketime; apt-get install faketime")
    file = pathlib.Path(trial.path("clock"))
    file.write_text("+0\n")
    told = {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1"}
    settings = ["log.retention.check.interval.ms=100ms", "log.segment.bytes=1MiB",
                "log.segment.initial.bytes=256KiB", "log.inline.max.bytes=256KiB",
                "offsets.retention.check.interval.ms=100ms",
                "log.message.timestamp.after.max.ms=9223372036854775807"]
    with trial.broker(settings) as broker:
        broker.environment = told
        broker.stop_and_start()
        load = trial.workload(broker, consumers=1, commits=True, rate=500).start()
        load.await_acknowledged(1000, 30)
        for step in ("+1h", "+0", "-1h", "+0", "+10y", "+0", "-10y", "+0"):
            file.write_text(step + "\n")
            load.await_acknowledged(trial.pick(500, 5000), 60)
        figures = passes(load, broker)
        broker.ends_well()
    first = {number: range[0] for number, range in load.history.ranges.items()}
    if any(first.values()):
        raise AssertionError(f"records were deleted, the logs begin at {first}")
    return f"8 steps, {figures}"


class MemoryGroup:
    """A control group of this run, in either hierarchy."""

    def __init__(self, limit):
        name = f"basalt-faults-{os.getpid()}"
        old, new = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        self.is_old = old.is_dir()
        self.dir = (old if self.is_old else new) / name
        try:
            self.dir.mkdir()
            file = "memory.limit_in_bytes" if self.is_old else "memory.max"
            (self.dir / file).write_text(str(limit))
        except OSError as error:
            self.close()
            raise NotRun(f"no control group with a memory limit: {error}") from error

    def take(self, pid):
        (self.dir / "cgroup.procs").write_text(str(pid))

    def kills(self):
        file = "memory.oom_control" if self.is_old else "memory.events"
        words = dict(line.split() for line in (self.dir / file).read_text().splitlines())
        return int(words["oom_kill"])

    def close(self):
        if self.dir.is_dir():
            self.dir.rmdir()


def slow_reader(address, topic, stop_at, got):
    """Asks for all there is again and again and takes 1 KiB of the answers a second."""
    host, port = address.rsplit(":", 1)
    place = struct.pack(">iqi", 0, 0, 1 << 20)
    body = struct.pack(">iiiib", -1, 500, 1, 8 << 20, 0) + many([text(topic) + many([place])])
    frame = struct.pack(">hhi", 1, 4, 9) + text("slow") + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect((host, int(port)))
        connection.sendall((struct.pack(">i", len(frame)) + frame) * 4)
        while time.monotonic() < stop_at:
            more = connection.recv(1024)
            if not more:
                return
            got.append(len(more))
            time.sleep(1)


@scenario("memory", 300, 90)
def memory(trial):
    """a limit of 512 MB, producers of 4 times that, consumers that read 1 KiB a second (1,000;
    short 200): no OOM kill, anonymous memory bounded"""
    readers, goal = trial.pick((200, 600 << 20), (1000, 2 << 30))
    control = MemoryGroup(MEMORY_LIMIT)
    try:
        with trial.broker(["log.segment.bytes=64MiB"]) as broker:
            control.take(broker.pid())
            figures = press(trial, broker, readers, goal)
            broker.ends_well()
        if control.kills():
            raise AssertionError(f"{control.kills()} OOM kills")
    finally:
        for broker in trial.brokers:
            broker.kill()
        until(lambda: gone(control), 10, "the control group is empty")
    return f"0 OOM kills, {figures}"


def gone(control):
    try:
        control.close()
        return True
    except OSError:
        return False


def press(trial, broker, readers, goal):
    """Writes until the goal beside slow readers."""
    import confluent_kafka as ck
    load = trial.workload(broker, rate=100).start()
    load.await_acknowledged(100, 30)
    heavy = ck.Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 20,
                         "queue.buffering.max.kbytes": 65536, "log_level": 0,
                         "message.max.bytes": 1000000})
    value, done, failed = trial.chance.randbytes(100_000), [], []

    def answered(error, _):
        (failed if error else done).append(error)

    end, got, threads = time.monotonic() + trial.pick(40, 200), [], []
    peak = 0
    while len(done) * len(value) < goal and time.monotonic() < end:
        try:
            heavy.produce("heavy", value, on_delivery=answered)
            heavy.poll(0)
        except BufferError:
            heavy.poll(0.1)
        if len(done) > 300 and not threads:
            threads = [threading.Thread(target=slow_reader, daemon=True,
                                        args=(broker.address, "heavy", end, got))
                       for _ in range(readers)]
            for thread in threads:
                thread.start()
        if not broker.is_running():
            raise AssertionError(f"the broker has gone\n{broker.errors()}")
        if len(done) % 100 == 0:
            peak = max(peak, broker.anonymous_bytes())
    heavy.flush(60)
    if failed or not got:
        raise AssertionError(f"{len(failed)} writes failed ({set(map(str, failed))}), slow readers "
                             f"took {sum(got)} bytes")
    if peak > MEMORY_LIMIT // 2:
        raise AssertionError(f"{peak >> 20} MiB of anonymous memory")
    figures = passes(load, broker)
    return f"{len(done) * len(value) >> 20} MiB written, {readers} slow readers, at most " \
           f"{peak >> 20} MiB anonymous, {figures}"
