"""Groups: floods of members, and rebalances without end beside kills."""
import socket
import struct
import threading
import time

from trial import passes, percentile, scenario
from wire import Reader, Refused, coordinator, many, patiently, receive, text

HEARTBEAT_SECONDS = 1.0
MEMBERS_A_GROUP = 50
OPEN_AT_ONCE = 100
JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
REBALANCE = 27


class Connection:
    """Requests one after the other, answers when they are asked for."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.number = 0

    def send(self, api, version, body):
        self.number += 1
        frame = struct.pack(">hhi", api, version, self.number) + text("member") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self):
        length = struct.unpack(">i", receive(self.socket, 4))[0]
        answer = Reader(receive(self.socket, length))
        answer.int32()
        return answer

    def ask(self, api, version, body):
        self.send(api, version, body)
        return self.answer()


def join_body(group, member):
    protocol = many([text("range") + struct.pack(">i", 6) + b"\0\0\0\0\0\0"])
    return text(group) + struct.pack(">ii", 30000, 30000) + text(member) + text("consumer") \
        + protocol


class Steady(threading.Thread):
    """A group of one member that only sends heartbeats; how long each took."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.connection, self.took, self.trouble = Connection(address), [], None
        self.ended = threading.Event()
        self.group = "steady"
        self.member, self.generation = self.joined()

    def joined(self):
        answer = self.connection.ask(JOIN_GROUP, 1, join_body(self.group, ""))
        code, generation, _, _, member = (answer.int16(), answer.int32(), answer.text(),
                                          answer.text(), answer.text())
        if code:
            raise Refused("JoinGroup", code)
        body = text(self.group) + struct.pack(">i", generation) + text(member)
        assigned = many([text(member) + struct.pack(">i", 2) + b"\0\0"])
        code = self.connection.ask(SYNC_GROUP, 0, body + assigned).int16()
        if code:
            raise Refused("SyncGroup", code)
        return member, generation

    def run(self):
        try:
            body = text(self.group) + struct.pack(">i", self.generation) + text(self.member)
            while not self.ended.wait(0.05):
                begun = time.monotonic()
                code = self.connection.ask(HEARTBEAT, 0, body).int16()
                self.took.append(time.monotonic() - begun)
                if code:
                    raise Refused("Heartbeat", code)
        except Exception as error:  # told by the scenario
            self.trouble = error


@scenario("joins", 900, 90)
def joins(trial):
    """50,000 members join (short 1,000), most of them never heard of again: another group's
    heartbeats within 1 s, no panic"""
    total = trial.pick(1000, 50_000)
    with trial.broker(["group.initial.rebalance.delay.ms=100ms"]) as broker:
        # Groups have a coordinator once somebody has asked for one.
        patiently(lambda: coordinator(broker.address, "steady"))
        steady = patience(lambda: Steady(broker.address), broker)
        steady.start()
        begun, sent, codes, grown = time.monotonic(), 0, {}, broker.anonymous_bytes()
        while sent < total:
            connections = [Connection(broker.address) for _ in range(OPEN_AT_ONCE)]
            for connection in connections:
                group = f"flood-{sent // MEMBERS_A_GROUP}"
                connection.send(JOIN_GROUP, 1, join_body(group, ""))
                sent += 1
            # Every tenth waits for what comes of it, the others hang up.
            for connection in connections[::10]:
                code = connection.answer().int16()
                codes[code] = codes.get(code, 0) + 1
            for connection in connections:
                connection.socket.close()
        seconds = time.monotonic() - begun
        steady.ended.set()
        steady.join(30)
        grown = broker.anonymous_bytes() - grown
        if steady.trouble:
            raise AssertionError(f"the steady group: {steady.trouble!r}")
        worst = max(steady.took)
        broker.ends_well()
    if set(codes) - {0, REBALANCE} or len(steady.took) < 10:
        raise AssertionError(f"joins were answered by {codes}, {len(steady.took)} heartbeats")
    if worst > HEARTBEAT_SECONDS:
        raise AssertionError(f"a heartbeat took {worst:.2f} s")
    return f"{sent} joins in {seconds:.1f} s, {len(steady.took)} heartbeats of another group: " \
           f"p99 {percentile(steady.took, 0.99) * 1e3:.1f} ms, at most {worst * 1e3:.1f} ms, " \
           f"{grown >> 10} KiB more"


def patience(work, broker):
    """The offsets topic is made at the first use."""
    end = time.monotonic() + 20
    while True:
        try:
            return work()
        except Refused:
            broker.running()
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@scenario("storm", 900, 120)
def storm(trial):
    """members come and go without end, the broker is killed now and then: committed offsets never
    fall, the group reads everything"""
    seconds, kills = trial.pick(12, 180), 0
    with trial.broker(["group.initial.rebalance.delay.ms=50ms"]) as broker:
        load = trial.workload(broker, consumers=2, commits=True, partitions=6).start()
        load.await_acknowledged(200, 30)
        passing, moves = Passing(load), 0
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                time.sleep(trial.chance.uniform(0.1, 1.0))
                passing.move(trial.chance)
                moves += 1
                if trial.chance.random() < 0.15:
                    broker.kill_and_start()
                    kills += 1
        finally:
            passing.leave()
        figures = passes(load, broker)
        broker.ends_well()
    return f"{moves} comings and goings, {kills} kills, {len(load.history.views)} assignments, " \
           f"{figures}"


class Passing:
    """Members of a workload's group that stay for a moment. What they are given they read and
    commit like the others."""

    def __init__(self, load):
        self.load, self.members = load, []

    def move(self, chance):
        if len(self.members) < 4 and chance.random() < 0.6:
            ended = threading.Event()
            thread = threading.Thread(target=self.load.consume, args=(ended,), daemon=True)
            thread.start()
            self.members.append((thread, ended))
        elif self.members:
            self.members.pop(chance.randrange(len(self.members)))[1].set()

    def leave(self):
        for thread, ended in self.members:
            ended.set()
            thread.join(30)
