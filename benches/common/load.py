"""The load: the program of load.c for HTTP/1.1, and h2load for HTTP/2."""

import json
import os
import re
import socket
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

    def http1(self, seconds, connections=64, rate=0, keys=0, is_fresh=False, most=0):
        options = ["-c", str(connections), "-d", str(seconds)]
        options += ["-r", str(rate)] if rate else []
        options += ["-k", str(keys)] if keys else []
        options += ["-n"] if is_fresh else []
        options += ["-m", str(most)] if most else []
        found = json.loads(self.run([str(self.program), *options, str(self.port), PATH]))
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


def used_connection(port):
    """A connection that has had a response."""
    stream = socket.create_connection((HOST, port))
    stream.sendall(f"GET {PATH} HTTP/1.1\r\nHost: bench.example\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\nsss" not in data:
        data += stream.recv(65536)
    return stream
