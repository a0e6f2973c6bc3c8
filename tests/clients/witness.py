"""Where a client stands: what it fetches next, seen by a relay between it and the broker.

Clients tell their position in different ways and some do not tell it at all; what they ask for is
the same for all. The broker keeps no fetch sessions, so that each fetch names every partition.
"""
import select
import socket
import struct
import threading

import wire
from broker import free_port

FETCH = 1
# From these versions on: no replica id, topics by id, lengths of variable size.
WITHOUT_REPLICA, BY_ID, FLEXIBLE = 15, 13, 12


class Request(wire.Reader):
    """A request's fields, of flexible versions as well."""

    def varint(self):
        value, shift = 0, 0
        while True:
            byte = self.take(">B")
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def tags(self):
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())


def fetched(frame):
    """Partition → offset of a Fetch request; nothing of any other."""
    request = Request(frame)
    api, version, _, _ = request.int16(), request.int16(), request.int32(), request.text()
    if api != FETCH:
        return {}
    flexible = version >= FLEXIBLE
    count = (lambda: request.varint() - 1) if flexible else request.int32
    close = request.tags if flexible else (lambda: None)
    close()
    if version < WITHOUT_REPLICA:
        request.int32()
    request.int32(), request.int32(), request.int32(), request.take(">b")
    if version >= 7:
        request.int32(), request.int32()
    found = {}
    for _ in range(count()):
        request.raw(16 if version >= BY_ID else count() if flexible else request.int16())
        for _ in range(count()):
            partition = request.int32()
            if version >= 9:
                request.int32()
            found[partition] = request.int64()
            if version >= 12:
                request.int32()
            if version >= 5:
                request.int64()
            request.int32()
            close()
        close()
    return found


class Witness:
    """Relays connections to an address; used in a `with`."""

    def __init__(self, to):
        self.to, self.positions, self.fetches, self.trouble = to, {}, 0, None
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def forget(self):
        """Another client comes."""
        self.positions, self.fetches = {}, 0

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self.relay, args=[client], daemon=True).start()

    def relay(self, client):
        """Until one side is gone, which is then told to the other."""
        host, port = self.to.rsplit(":", 1)
        seen = bytearray()
        with client:
            try:
                with socket.create_connection((host, int(port)), timeout=10) as broker:
                    while True:
                        for side in select.select([client, broker], [], [])[0]:
                            data = side.recv(1 << 20)
                            if not data:
                                return
                            if side is client:
                                self.look(seen, data)
                            (broker if side is client else client).sendall(data)
            except OSError:
                return  # the broker is down, or the client went in the middle

    def look(self, seen, data):
        seen += data
        while len(seen) >= 4 and len(seen) >= 4 + struct.unpack_from(">i", seen)[0]:
            end = 4 + struct.unpack_from(">i", seen)[0]
            try:
                found = fetched(bytes(seen[4:end]))
            except (struct.error, UnicodeDecodeError) as error:
                self.trouble = f"a request cannot be read: {error!r}"
                found = {}
            del seen[:end]
            self.fetches += bool(found)
            self.positions.update(found)
