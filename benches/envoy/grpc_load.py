"""Calls of the service at random times with a given mean rate, over HTTP/2 in the clear.

Calls do not wait for the responses to others (an open loop), so a service that stalls can't hide it. The requests are bytes
that were made before: only stream numbers differ. Of responses only the frames are read: a message that says OK, and the end of
the stream.
"""

import gc
import random
import select
import socket
import struct
import time

from programs import HOST, fail

CONNECTIONS = 4
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Bytes of responses after which the window of a connection is opened again.
WINDOW = 16_384
# The overall code of a response: OK.
MESSAGE_OK = b"\x08\x01"
# How long responses may take after the last call.
LAST_SECONDS = 1.0


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    """A text of HPACK, not compressed, of less than 127 bytes."""
    return bytes([len(value)]) + value.encode()


def header_block(path):
    """POST and http are entries of the static table; no other field is added to a table."""
    fields = [b"\x83\x86", b"\x04" + text(path), b"\x01" + text("bench.example")]
    fields += [b"\x0f\x10" + text("application/grpc"), b"\x00" + text("te") + text("trailers")]
    return b"".join(fields)


class Connection:
    def __init__(self, port, block):
        self.block, self.stream, self.read, self.unopened = block, 1, b"", 0
        # When the open calls were sent, and those of them that have had a message.
        self.sent, self.allowed = {}, set()
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def fileno(self):
        return self.socket.fileno()

    def call(self, body):
        stream = self.stream
        self.stream += 2
        head = frame(HEADERS, END_HEADERS, stream, self.block)
        self.sent[stream] = time.perf_counter()
        self.socket.sendall(head + frame(DATA, END_STREAM, stream, body))

    def receive(self, times):
        """Reads what has arrived, and adds the times of the calls that have ended."""
        data = self.socket.recv(65_536)
        if not data:
            fail("the service has closed a connection")
        now, self.read = time.perf_counter(), self.read + data
        while len(self.read) >= 9 and len(self.read) >= 9 + (length := int.from_bytes(self.read[:3], "big")):
            kind, flags, stream = struct.unpack(">BBI", self.read[3:9])
            self.handle(kind, flags, stream, self.read[9 : 9 + length], times, now)
            self.read = self.read[9 + length :]

    def handle(self, kind, flags, stream, payload, times, now):
        if kind == DATA:
            self.unopened += len(payload)
            if payload[5:7] == MESSAGE_OK:
                self.allowed.add(stream)
            if self.unopened > WINDOW:
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, self.unopened.to_bytes(4, "big")))
                self.unopened = 0
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == GOAWAY:
            fail("the service shuts a connection down")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            if stream not in self.allowed:
                fail("a call has no decision, or is denied")
            self.allowed.remove(stream)
            times.append((now - self.sent.pop(stream)) * 1e6)


class Ping:
    """A connection to Redis, which has a PING at a time under way as a rule."""

    def __init__(self, port):
        self.sent = []
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self):
        return self.socket.fileno()

    def call(self, body):
        self.sent.append(time.perf_counter())
        self.socket.sendall(body)

    def receive(self, times):
        responses, now = self.socket.recv(65_536).count(b"\n"), time.perf_counter()
        times += [(now - sent) * 1e6 for sent in self.sent[:responses]]
        del self.sent[:responses]


def ping(port, rate, seconds):
    """The times of PING commands of Redis: what the machine itself takes for a round trip."""
    return paced([Ping(port) for _ in range(CONNECTIONS)], [b"PING\r\n"], rate, seconds)


def run(port, path, bodies, rate, seconds):
    """The times of the calls in microseconds, sorted."""
    block = header_block(path)
    return paced([Connection(port, block) for _ in range(CONNECTIONS)], bodies, rate, seconds)


def paced(connections, bodies, rate, seconds):
    """The times of calls that begin at random, in microseconds and sorted."""
    arrivals, times, number = random.Random(1), [], 0
    due = time.perf_counter()
    end = due + seconds
    gc.disable()
    while due < end:
        wait = due - time.perf_counter()
        if wait <= 0:
            connections[number % CONNECTIONS].call(bodies[number % len(bodies)])
            number += 1
            due += arrivals.expovariate(rate)
            continue
        for connection in select.select(connections, [], [], wait)[0]:
            connection.receive(times)
    while len(times) < number and (wait := end + LAST_SECONDS - time.perf_counter()) > 0:
        for connection in select.select(connections, [], [], wait)[0]:
            connection.receive(times)
    gc.enable()
    for connection in connections:
        connection.socket.close()
    if len(times) < number:
        fail(f"{number - len(times)} of {number} calls have no response")
    return sorted(times)
