"""The clients. All of them send the same number of requests over each connection."""

import contextlib
import re
import signal
import socket
import ssl
import subprocess

from programs import HOST, fail
from scenarios import Client


@contextlib.contextmanager
def stopped(process):
    """The process is stopped meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class SocketClient:
    """Sends a request over each connection, reads the responses, and repeats. The requests are sent while the proxy is
    stopped, so that it finds all of them at once: how many it handles each time it looks for events would depend on the load
    of the machine, and so would the count."""

    def __init__(self, scenario, connections, port, process):
        self.scenario, self.port, self.process = scenario, port, process
        self.is_fresh = scenario.client == Client.CONNECTION
        lines = [f"{'POST' if scenario.body else 'GET'} /s HTTP/1.1", "Host: bench.example", "X-Api-Key: k1", *scenario.headers]
        lines += ["Connection: close"] if self.is_fresh else []
        self.request = "".join(f"{line}\r\n" for line in [*lines, ""]).encode() + scenario.body
        self.streams = [None if self.is_fresh else self.connect() for _ in range(connections)]

    def connect(self):
        stream = socket.create_connection((HOST, self.port))
        if self.scenario.client != Client.TLS:
            return stream
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(stream, server_hostname="bench.example")

    def send(self, rounds):
        """Sends `rounds` requests for each connection; the statuses of the responses."""
        statuses = set()
        for _ in range(rounds):
            with stopped(self.process):
                used = [self.connect() for _ in self.streams] if self.is_fresh else self.streams
                for stream in used:
                    stream.sendall(self.request)
            statuses |= {read_response(stream) for stream in used}
            if self.is_fresh:
                for stream in used:
                    stream.close()
        return statuses

    def close(self):
        for stream in self.streams:
            if stream:
                stream.close()


class H2loadClient:
    """Runs h2load, which opens its connections anew each time."""

    def __init__(self, scenario, connections, port, _process):
        self.scenario = scenario
        self.connections, self.url = connections, f"https://{HOST}:{port}/s"
        headers = ["X-Api-Key: k1", *scenario.headers]
        self.headers = [argument for header in headers for argument in ("-H", header)]

    def send(self, rounds):
        """Sends `rounds` requests for each connection; the status of the responses."""
        count = self.connections * rounds
        load = ["-n", str(count), "-c", str(self.connections), "-m", "1", "-t", "1"]
        command = ["h2load", *load, *self.headers, self.url]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if f"status codes: {count} 2xx" not in output or "Application protocol: h2" not in output:
            fail(f"h2load reports:\n{output}")
        return {200}

    def close(self):
        """Nothing is open."""


def client(scenario, connections, port, process):
    kind = H2loadClient if scenario.client == Client.HTTP2 else SocketClient
    return kind(scenario, connections, port, process)


def read_response(stream):
    """Reads a response with a Content-Length; its status."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65536)
        if not piece:
            fail(f"a connection ended within a response: {data!r}")
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?im)^content-length: (\d+)", head)[1])
    while len(body) < length:
        body += stream.recv(65536)
    return int(head.split(b" ")[1])
