"""The few Kafka requests the judge sends itself, so that no client is the only witness of its own
offsets: ends of partitions, committed offsets, members of a group, topics for clients that make
none. Old, plain versions of each request, which Apache Kafka 4 still answers.

An answer that says "not yet" is asked again until PATIENCE is over; any other error is raised.
"""
import socket
import struct
import time

PATIENCE = 30
# Loading, no coordinator yet, not the coordinator, no leader, no such topic yet, timed out.
NOT_YET = {3, 5, 6, 7, 14, 15, 16}
METADATA, OFFSET_FETCH, FIND_COORDINATOR = 3, 9, 10
LIST_OFFSETS, DESCRIBE_GROUPS, CREATE_TOPICS, DELETE_TOPICS = 2, 15, 19, 20
EARLIEST, LATEST = -2, -1


class Refused(Exception):
    def __init__(self, what, code):
        super().__init__(f"{what}: error {code}")
        self.code = code


class Reader:
    """Reads an answer's fields from left to right."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        value = struct.unpack_from(layout, self.data, self.at)[0]
        self.at += struct.calcsize(layout)
        return value

    def int16(self):
        return self.take(">h")

    def int32(self):
        return self.take(">i")

    def int64(self):
        return self.take(">q")

    def raw(self, length):
        if length < 0:
            return None
        self.at += length
        return bytes(self.data[self.at - length:self.at])

    def text(self):
        data = self.raw(self.int16())
        return None if data is None else data.decode()

    def blob(self):
        return self.raw(self.int32())

    def many(self, one):
        return [one() for _ in range(self.int32())]


def text(value):
    return struct.pack(">h", len(value.encode())) + value.encode()


def many(items):
    return struct.pack(">i", len(items)) + b"".join(items)


def receive(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError(f"closed after {len(data)} of {length} bytes")
        data += more
    return data


def ask(address, api, version, body):
    """One request on a connection of its own."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        frame = struct.pack(">hhi", api, version, 7) + text("judge") + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        length = struct.unpack(">i", receive(connection, 4))[0]
        answer = Reader(receive(connection, length))
    if answer.int32() != 7:
        raise ConnectionError(f"api {api} v{version}: the answer belongs to another request")
    return answer


def patiently(work):
    """Asks again while the broker says that it is not ready yet, or is not there."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except (Refused, OSError) as error:
            final = isinstance(error, Refused) and error.code not in NOT_YET
            if final or time.monotonic() > until:
                raise
        time.sleep(0.1)


def check(what, code):
    if code:
        raise Refused(what, code)


def create(address, topic, partitions, configs=()):
    """`configs` are pairs of a name and a text."""
    def work():
        settings = many([text(name) + text(value) for name, value in configs])
        described = text(topic) + struct.pack(">ih", partitions, 1) + many([]) + settings
        body = many([described]) + struct.pack(">i?", 30000, False)
        answer = ask(address, CREATE_TOPICS, 2, body)
        answer.int32()
        for name, code, _ in answer.many(lambda: (answer.text(), answer.int16(), answer.text())):
            check(f"CreateTopics {name}", code)
    patiently(work)


def delete(address, topic):
    def work():
        body = many([text(topic)]) + struct.pack(">i", 30000)
        answer = ask(address, DELETE_TOPICS, 1, body)
        answer.int32()
        for name, code in answer.many(lambda: (answer.text(), answer.int16())):
            check(f"DeleteTopics {name}", code)
    patiently(work)


def leaders(address, topic):
    """Partition → address of its leader."""
    answer = ask(address, METADATA, 1, many([text(topic)]))
    brokers = {}
    for _ in range(answer.int32()):
        node, host, port, _ = answer.int32(), answer.text(), answer.int32(), answer.text()
        brokers[node] = f"{host}:{port}"
    answer.int32()
    found = {}
    for _ in range(answer.int32()):
        check(f"Metadata {topic}", answer.int16())
        answer.text(), answer.take(">b")
        for _ in range(answer.int32()):
            code, partition, leader = answer.int16(), answer.int32(), answer.int32()
            answer.many(answer.int32), answer.many(answer.int32)
            check(f"Metadata {topic} [{partition}]", code)
            found[partition] = brokers[leader]
    return found


def offsets(address, topic, when=LATEST):
    """Partition → offset of a timestamp; LATEST is the partition's end."""
    def work():
        found = {}
        for partition, leader in leaders(address, topic).items():
            wanted = text(topic) + many([struct.pack(">iq", partition, when)])
            answer = ask(leader, LIST_OFFSETS, 1, struct.pack(">i", -1) + many([wanted]))
            for _ in range(answer.int32()):
                answer.text()
                for _ in range(answer.int32()):
                    number, code, _, offset = (answer.int32(), answer.int16(), answer.int64(),
                                               answer.int64())
                    check(f"ListOffsets {topic} [{number}]", code)
                    found[number] = offset
        return found
    return patiently(work)


def coordinator(address, group):
    answer = ask(address, FIND_COORDINATOR, 0, text(group))
    check(f"FindCoordinator {group}", answer.int16())
    answer.int32()
    host = answer.text()
    return f"{host}:{answer.int32()}"


def committed(address, group, topic, partitions):
    """Partition → committed offset, -1 for none."""
    def work():
        wanted = text(topic) + many([struct.pack(">i", number) for number in range(partitions)])
        body = text(group) + many([wanted])
        answer = ask(coordinator(address, group), OFFSET_FETCH, 1, body)
        found = {}
        for _ in range(answer.int32()):
            answer.text()
            for _ in range(answer.int32()):
                number, offset, _, code = (answer.int32(), answer.int64(), answer.text(),
                                           answer.int16())
                check(f"OffsetFetch {group} {topic} [{number}]", code)
                found[number] = offset
        return found
    return patiently(work)


def assignment(data, topic):
    """The partitions of a topic in a member's assignment, which is the clients' own layout."""
    if not data:
        return []
    answer = Reader(data)
    answer.int16()
    parts = answer.many(lambda: (answer.text(), answer.many(answer.int32)))
    return sorted(number for name, numbers in parts if name == topic for number in numbers)


class Group:
    def __init__(self, state, members):
        self.state, self.members = state, members

    def __str__(self):
        return f"{self.state} {[parts for _, parts in self.members]}"


def group(address, name, topic):
    """A group's state and its members' partitions of a topic."""
    def work():
        answer = ask(coordinator(address, name), DESCRIBE_GROUPS, 0, many([text(name)]))
        answer.int32()
        check(f"DescribeGroups {name}", answer.int16())
        answer.text()
        state, _, _ = answer.text(), answer.text(), answer.text()
        members = []
        for _ in range(answer.int32()):
            member, _, _, _ = answer.text(), answer.text(), answer.text(), answer.blob()
            members.append((member, assignment(answer.blob(), topic)))
        return Group(state, members)
    return patiently(work)
