"""The load: the program of load.c for HTTP/1.1, and h2load for HTTP/2."""

import json
import os
import re
import socket
import ssl
import subprocess
from dataclasses import dataclass

from programs import HOST, compiled, fail


PATH = "/some/path"


@dataclass(frozen=True)
class Result:
    """What a load has brought. Times are in microseconds, of the responses with status 200."""

    seconds: float
    responses: int
    successes: int
    failed: int
    p50: float
    p99: float
    late: int = 0

    @property
    def denied_share(self):
        return 1 - self.successes / self.responses


@dataclass(frozen=True)
class Request:
    """What is sent to the proxy over HTTP/1.1."""

    path: str = PATH
    headers: tuple = ()
    body_bytes: int = 0
    is_chunked: bool = False
    is_fresh: bool = False

    def options(self):
        """Those of the load generator."""
        options = [option for line in self.headers for option in ("-H", line)]
        options += ["-b", str(self.body_bytes)] if self.body_bytes else []
        options += ["-t"] if self.is_chunked else []
        return options + (["-n"] if self.is_fresh else [])


class Generator:
    """Loads the proxy from some cores."""

    def __init__(self, directory, port, cores):
        self.program, self.port, self.cores = compiled("load", directory), port, cores

    def run(self, command):
        pin = lambda: os.sched_setaffinity(0, self.cores)  # noqa: E731
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin)
        if done.returncode:
            fail(f"{' '.join(command)}: {done.stderr}{done.stdout}")
        return done.stdout

    def http1(self, seconds, connections=64, rate=0, keys=0, most=0, request=Request()):
        options = ["-c", str(connections), "-d", str(seconds), *request.options()]
        options += ["-r", str(rate)] if rate else []
        options += ["-k", str(keys)] if keys else []
        options += ["-m", str(most)] if most else []
        found = json.loads(self.run([str(self.program), *options, str(self.port), request.path]))
        responses = sum(found[f"{digit}xx"] for digit in range(1, 6))
        if not responses:
            fail("the proxy does not respond under load")
        return Result(
            found["seconds"], responses, found["2xx"], found["failed"], found["p50"], found["p99"], found["late"]
        )

    def http2(self, seconds, connections=16, streams=4):
        """16 connections with 4 streams each are 64 requests at a time, as over HTTP/1.1."""
        load = ["-t", "1", "-c", str(connections), "-m", str(streams), "-D", f"{seconds * 1000:.0f}ms", "--warm-up-time", "0"]
        output = self.run(["h2load", *load, f"https://{HOST}:{self.port}{PATH}"])
        took = re.search(r"finished in ([\d.]+)(m?s)", output)
        statuses = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
        if not took or not statuses or "Application protocol: h2" not in output:
            fail(f"h2load reports:\n{output}")
        counts = [int(text) for text in statuses.groups()]
        time = re.search(r"time for request: +\S+ +\S+ +([\d.]+)(us|ms|s)", output)
        mean = float(time[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[time[2]]
        return Result(float(seconds), sum(counts), counts[0], 0, mean, 0)


    def handshakes(self, seconds, option):
        """New connections over TLS 1.3, one at a time, each with a request."""
        time = ["-time", str(max(1, round(seconds))), option, "-www", PATH]
        output = self.run(["openssl", "s_time", "-connect", f"{HOST}:{self.port}", "-tls1_3", *time])
        found = re.search(r"(\d+) connections in ([\d.]+) real seconds, (\d+) bytes read per connection", output)
        if not found or int(found[3]) < 128:
            fail(f"openssl s_time reports:\n{output}")
        count, took = int(found[1]), float(found[2])
        return Result(took, count, count, 0, took / count * 1e6, 0)


def http2_request():
    """The preface of HTTP/2, empty settings, and a request whose fields are literals or of the static table."""
    target, host = PATH.encode(), b"bench.example"
    fields = b"\x82\x87\x04" + bytes([len(target)]) + target + b"\x01" + bytes([len(host)]) + host
    settings, headers = b"\0\0\0\4\0\0\0\0\0", len(fields).to_bytes(3, "big") + b"\1\5\0\0\0\1"
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers + fields


def used_connection(port, protocol=None):
    """A connection that has had a response, over TLS with a protocol if one is given: "http/1.1" or "h2"."""
    stream = socket.create_connection((HOST, port))
    if protocol:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        stream = context.wrap_socket(stream)
    if protocol == "h2":
        stream.sendall(http2_request())
    else:
        stream.sendall(f"GET {PATH} HTTP/1.1\r\nHost: bench.example\r\n\r\n".encode())
    data = b""
    while b"sss" not in data:
        data += stream.recv(65536)
    return stream
