#!/usr/bin/env python3
"""Hostile bytes: floods of connections, slow ones, giant frames, bombs, malformed batches.

Floods come from a process of their own, so that they do not slow down the producer whose latencies
are held against those without them. A worked example of a bomb: 4 bytes of a zstd block say
"repeat this byte 131,072 times"; 8,000 of them are 1 GiB.
"""
import argparse
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
import zlib

GIANT = 0x7FFFFFFF
GROWTH_BYTES, GROWTH_PER_CONNECTION = 16 << 20, 6 << 10
# Below this, latencies are those of two processes sharing a CPU and not of the broker.
NOISE_SECONDS = 0.025
SETUP_SECONDS = 10
VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)

# The flood's own process ----------------------------------------------------------------------


class Flood:
    """Connections without blocking, each with what it has sent and got."""

    def __init__(self, address, count):
        host, port = address.rsplit(":", 1)
        self.place, self.count = (host, int(port)), count
        self.selector = selectors.DefaultSelector()
        self.alive, self.closed_at, self.answered, self.refused = set(), [], 0, 0
        self.begun = time.monotonic()

    def connect(self, first):
        for _ in range(self.count):
            connection = socket.socket()
            connection.setblocking(False)
            try:
                connection.connect_ex(self.place)
                self.selector.register(connection, selectors.EVENT_WRITE, first)
            except OSError:
                self.refused += 1
                connection.close()
                continue
            self.alive.add(connection)
            if len(self.alive) % 64 == 0:
                self.step(0)

    def step(self, seconds):
        for key, _ in self.selector.select(seconds):
            connection = key.fileobj
            try:
                if key.data is not None:
                    connection.send(key.data)
                    self.selector.modify(connection, selectors.EVENT_READ, None)
                elif connection.recv(65536):
                    self.answered += 1
                else:
                    self.close(connection)
            except OSError:
                self.close(connection)

    def close(self, connection):
        self.closed_at.append(time.monotonic() - self.begun)
        self.selector.unregister(connection)
        connection.close()
        self.alive.discard(connection)

    def until(self, condition, seconds, each=lambda: None):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.step(0.05)
            each()


def flood(kind, address, count):
    """Prints a line when all stand, or when all are closed; ends with its standard input."""
    flood = Flood(address, count)
    if kind == "connect":
        flood.connect(VERSIONS)
        flood.until(lambda: flood.answered + len(flood.closed_at) >= len(flood.alive), 60)
    elif kind == "slow":
        flood.connect(b"\0")
        drip = [time.monotonic() + 5]

        def each():
            if time.monotonic() > drip[0]:
                drip[0] += 5
                for connection in list(flood.alive):
                    try:
                        connection.send(b"\0")
                    except OSError:
                        flood.close(connection)

        flood.until(lambda: not flood.alive, SETUP_SECONDS + 20, each)
    else:
        # Half of them announce 2 GiB, half what is just allowed; all then send a little of it.
        size = GIANT if kind == "giant" else (100 << 20) - 1
        flood.connect(struct.pack(">i", size) + VERSIONS[4:] + b"\0" * 1000)
        flood.until(lambda: not flood.alive, SETUP_SECONDS + 20)
    print(len(flood.alive), flood.answered, len(flood.closed_at), flood.refused,
          f"{max(flood.closed_at, default=0):.2f}", flush=True)
    sys.stdin.read()


# Batches -------------------------------------------------------------------------------------


def make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = make_table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def varint(number):
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def record(delta, value):
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(payload, count, codec=0, last_delta=None, magic=2):
    """A batch around records as they are, its checksum right."""
    now = int(time.time() * 1000)
    last = count - 1 if last_delta is None else last_delta
    covered = struct.pack(">hiqqqhii", codec, last, now, now, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, magic, crc32c(covered)) + covered


def sealed(data):
    """With the checksum of what it holds now."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def xxh32(data):
    """Of fewer than four bytes, as lz4 needs it."""
    mask, value = 0xFFFFFFFF, 374761393 + len(data)
    for byte in data:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def gzip_bomb():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return b"".join([*(packer.compress(zeros) for _ in range(256)), packer.flush()])


def lz4_bomb():
    descriptor = b"\x60\x70"
    length = (4 << 20) - 6 - 4
    block = b"\x1f\0\1\0" + b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255]) \
        + b"\x50" + bytes(5)
    return struct.pack("<I", 0x184D2204) + descriptor + bytes([xxh32(descriptor) >> 8 & 255]) \
        + (struct.pack("<I", len(block)) + block) * 50 + bytes(4)


def zstd_bomb():
    block = struct.pack("<I", 1 << 1 | (128 << 10) << 3)[:3] + b"\0"
    return struct.pack("<I", 0xFD2FB528) + b"\0" + bytes([13 << 3]) + block * 8000 + b"\1\0\0"


def snappy_bomb():
    """Announces 4 GiB; what follows are as many copies as fit."""
    return b"\xff\xff\xff\xff\x0f" + b"\0\0" + b"\xfe\1\0" * 300_000


def xerial_bomb():
    """A chunk that announces 2 GiB."""
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, GIANT) + bytes(1000)


BOMBS = [("gzip", 1, gzip_bomb), ("snappy", 2, snappy_bomb), ("snappy chunk", 2, xerial_bomb),
         ("lz4", 3, lz4_bomb), ("zstd", 4, zstd_bomb)]


def malformed(chance, count):
    """Batches of which none may be appended, by what is wrong with them."""
    good = batch(record(0, b"a" * 30) + record(1, b"b" * 30), 2)

    def put(at, data, seal=True):
        made = good[:at] + data + good[at + len(data):]
        return sealed(made) if seal else made

    def i(number):
        return struct.pack(">i", number)

    yield "empty", b""
    for magic in (0, 1, 3, 255):
        yield "magic", put(16, bytes([magic]))
    for length in (-1, 0, 48, len(good) - 13, len(good) - 11, GIANT):
        yield "length", put(8, i(length))
    for codec in (5, 6, 7):
        yield "codec", put(22, bytes([codec]))
    for codec in (1, 2, 3, 4):
        yield "not compressed", put(22, bytes([codec]))
    yield "control batch of a client", put(22, b"\x20")
    for delta in (-1, 0, 2, GIANT):
        yield "last offset delta", put(23, i(delta))
    for number in (-1, 0, 1, 3, GIANT):
        yield "record count", put(57, i(number))
    for size in (b"\x7e\x7f", b"\xff\xff\xff\xff\x0f", b"\x80" * 10 + b"\1", b"\1"):
        yield "record length", put(61, size)
    yield "record offset", sealed(good[:61] + record(1, b"a") + record(0, b"b"))
    yield "two batches cut short", good + good[:70]
    for _ in range(count):
        place = chance.randrange(17, len(good))
        bit = 1 << chance.randrange(8)
        yield "flipped bit", put(place, bytes([good[place] ^ bit]), seal=False)
        yield "cut short", good[:chance.randrange(1, len(good))]
        yield "noise", chance.randbytes(chance.randrange(1, 200))


# The scenario --------------------------------------------------------------------------------


def produce(address, topic, data):
    """The error code of a produce request; -99 when the connection was closed instead."""
    from wire import ask, many, text
    place = many([struct.pack(">ii", 0, len(data)) + data])
    body = struct.pack(">hhi", -1, -1, 10000) + many([text(topic) + place])
    try:
        answer = ask(address, 0, 3, body)
    except ConnectionError:
        return -99
    answer.int32(), answer.text(), answer.int32(), answer.int32()
    return answer.int16()


class Attack:
    """A flood while it stands."""

    def __init__(self, kind, address, count):
        words = [sys.executable, __file__, "--flood", kind, address, str(count)]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)

    def __enter__(self):
        return self

    def stands(self):
        """Open connections, answers, closed ones, those not made, and when the last was closed."""
        words = self.child.stdout.readline().split()
        if not words:
            raise AssertionError("the flood has ended")
        return [float(word) for word in words]

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


def phase(load, begun):
    """The 99th percentile of what was acknowledged since."""
    from trial import percentile
    took = [seconds for at, seconds in load.latencies if at > begun]
    if len(took) < 50:
        raise AssertionError(f"only {len(took)} acknowledgements meanwhile")
    return percentile(took, 0.99)


def floods(trial, broker, load, usual):
    """Each flood beside the producer; figures."""
    told = []
    for kind, count in (("connect", trial.pick(1000, 10_000)), ("slow", trial.pick(200, 2000)),
                        ("giant", trial.pick(100, 1000)), ("large", trial.pick(100, 1000))):
        before, begun = broker.anonymous_bytes(), time.monotonic()
        with Attack(kind, broker.address, count) as attack:
            alive, answered, closed, refused, last = attack.stands()
            if time.monotonic() < begun + 2:
                load.await_acknowledged(150, 30)
            grown = broker.anonymous_bytes() - before
            worst = phase(load, begun)
        told.append(f"{kind} {count}: p99 {worst * 1e3:.1f} ms, {grown / 1024:.0f} KiB more")
        if kind == "connect" and answered < count:
            raise AssertionError(f"{answered:.0f} of {count} connections were answered, "
                                 f"{closed:.0f} closed, {refused:.0f} not made")
        if kind != "connect" and (alive or last > SETUP_SECONDS + 2):
            raise AssertionError(f"{kind}: {alive:.0f} of {count} connections still open, the "
                                 f"last closed after {last} s")
        if grown > GROWTH_BYTES + GROWTH_PER_CONNECTION * count:
            raise AssertionError(f"{kind}: {grown} bytes of memory for {count} connections")
        if worst > max(2 * usual, NOISE_SECONDS):
            raise AssertionError(f"{kind}: p99 {worst * 1e3:.1f} ms, {usual * 1e3:.1f} ms before")
        broker.running()
    return told


def batches(trial, broker, topic):
    """Bombs and malformed batches: each refused, nothing appended."""
    import wire
    taken, count, before = [], 0, broker.anonymous_bytes()
    for name, codec, make in BOMBS:
        code = produce(broker.address, topic, batch(make(), 1000, codec))
        count += 1
        if code == 0:
            taken.append(name)
    grown = broker.anonymous_bytes() - before
    for name, data in malformed(trial.chance, trial.pick(60, 1000)):
        count += 1
        if produce(broker.address, topic, data) == 0:
            taken.append(f"{name}: {data.hex()[:300]}")
    ends = wire.offsets(broker.address, topic)
    if taken or any(ends.values()):
        raise AssertionError(f"{len(taken)} of {count} were taken, {ends}: {taken[:3]}")
    if grown > GROWTH_BYTES:
        raise AssertionError(f"{grown} bytes of memory for bombs")
    good = produce(broker.address, topic, batch(record(0, b"good"), 1))
    if good != 0:
        raise AssertionError(f"a batch that is right is refused with {good}")
    return f"{count} bombs and malformed batches refused, {grown / 1024:.0f} KiB more"


def attack(trial):
    """10,000 connections at once, 2,000 that send a byte in 5 s, frames of 2 GiB, bombs in four
    codecs, malformed batches (short: a tenth): a producer's p99 within 2 x, closed in 10 s, memory
    within 6 KiB a connection + 16 MiB, nothing appended, no panic"""
    import wire
    from trial import passes
    with trial.broker(["max.connections=20000"]) as broker:
        load = trial.workload(broker, producers=1, rate=100).start()
        wire.create(broker.address, "hostile", 1)
        load.await_acknowledged(100, 30)
        begun = time.monotonic()
        load.await_acknowledged(400, 30)
        usual = phase(load, begun)
        told = [f"p99 {usual * 1e3:.1f} ms", *floods(trial, broker, load, usual),
                batches(trial, broker, "hostile")]
        figures = passes(load, broker)
        broker.ends_well()
    return f"{'; '.join(told)}; {figures}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flood", nargs=3, required=True, metavar=("KIND", "ADDRESS", "COUNT"),
                        help="connect, slow, giant or large")
    kind, address, count = parser.parse_args().flood
    random.seed(0)
    flood(kind, address, int(count))


if __name__ == "__main__":
    main()
else:
    from trial import scenario
    scenario("hostile", 600, 120)(attack)
