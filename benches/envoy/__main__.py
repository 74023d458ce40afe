#!/usr/bin/env python3
"""Measures Envoy's rate-limit service: what a decision costs and how long it takes, alone and through the real Envoy.

    make bench-envoy

The first table has gRPC calls of the service: the time of a decision at a fixed rate, of calls at random times, and as many
decisions as one worker makes (h2load, 128 calls at a time). The second one has requests through Envoy with one worker, over 64
kept connections: without a filter, with Envoy's own limit (local_ratelimit), and with the filter that calls the service. Envoy is
also the server behind it. There are 10,000 keys, but for h2load. Redis is near, 2 ms away behind a relay, or frozen (SIGSTOP):
then the load begins a second before, and only what follows is measured.

The measured program has the last core for itself: the service in the first table, Envoy in the second. All else has the
other cores.

Settings, as environment variables:
  ROUNDS=2   SECONDS_EACH=3   RATE=1000 (calls and requests per second)
  PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build   BASE_PORT=27500 (six ports)
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

import envoy_files  # noqa: E402
import grpc_load  # noqa: E402
from load import Generator  # noqa: E402
from machine import Cores, cpu_seconds, description, load_average  # noqa: E402
from programs import HOST, binary, compiled, enter_repository, fail, pinned, require  # noqa: E402

# Of the relay, in each direction.
REDIS_MILLISECONDS = 1
STORES = {
    "process": "in the process",
    "near": "Redis on this machine",
    "far": "Redis 2 ms away",
    "frozen": "Redis frozen",
}
FILTERS = {"none": "no filter", "local": "Envoy's own limit (local_ratelimit)"}


@dataclass(frozen=True)
class Ports:
    """The ports, from a first one on."""

    service: int

    envoy = property(lambda self: self.service + 1)
    server = property(lambda self: self.service + 2)
    redis = property(lambda self: self.service + 3)
    far_redis = property(lambda self: self.service + 4)

    def redis_of(self, store):
        return {"process": None, "far": self.far_redis}.get(store, self.redis)


@dataclass(frozen=True)
class Measured:
    """What a load has cost and brought. Times are in microseconds."""

    per_second: float
    p50: float
    p99: float
    # CPU time for a request at the fixed rate.
    cpu: float
    service_cpu: float


class Bench:
    """The programs of a measurement."""

    def __init__(self, directory, program):
        self.directory, self.program = Path(directory), program
        self.ports, self.cores = Ports(int(os.environ.get("BASE_PORT", "27500"))), Cores.of_this_machine()
        self.seconds, self.rate = float(os.environ.get("SECONDS_EACH", "3")), int(os.environ.get("RATE", "1000"))
        self.generator = Generator(directory, self.ports.envoy, self.cores.others)
        self.relay = compiled("delay", directory)
        self.calls = self.directory / "call"
        self.calls.write_bytes(envoy_files.call("ann"))
        self.bodies = [envoy_files.call(f"k-{number}") for number in range(envoy_files.KEYS)]
        # This process calls the service at a fixed rate.
        os.sched_setaffinity(0, self.cores.others)

    def process(self, command, port, cores, name):
        """A process on some cores, which writes to a file, until the end of the block."""
        return pinned(command, port, cores, self.directory / f"{name}.out")

    @contextlib.contextmanager
    def redis(self, store):
        if store == "process":
            yield None
            return
        command = ["redis-server", "--bind", HOST, "--port", str(self.ports.redis), "--save", "", "--appendonly", "no"]
        with contextlib.ExitStack() as programs:
            redis = programs.enter_context(self.process(command, self.ports.redis, self.cores.others, "redis"))
            if store == "far":
                ports = (self.ports.far_redis, self.ports.redis)
                relay = [str(self.relay), *map(str, ports), str(REDIS_MILLISECONDS)]
                programs.enter_context(self.process(relay, ports[0], self.cores.others, "relay"))
            yield redis

    def service(self, store, cores):
        path = self.directory / "tidegate.toml"
        path.write_text(envoy_files.service(self.ports.service, self.ports.redis_of(store)))
        return self.process([str(self.program), "run", "-c", str(path)], self.ports.service, cores, "tidegate")

    def envoy(self, kind):
        path = self.directory / "envoy.json"
        path.write_text(envoy_files.envoy(self.ports, kind))
        command = ["envoy", "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        return self.process(command, self.ports.envoy, self.cores.proxy, "envoy")

    def most(self):
        """As many decisions as one worker makes, per second."""
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", str(self.calls)]
        load = ["h2load", "-t", "1", "-c", "4", "-m", "32", "-D", f"{self.seconds * 1000:.0f}ms", *headers]
        output = self.generator.run([*load, f"http://{HOST}:{self.ports.service}{envoy_files.SHOULD_RATE_LIMIT}"])
        statuses = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", output)
        if not statuses:
            fail(f"h2load reports:\n{output}")
        return int(statuses[1]) / self.seconds

    def call(self, seconds):
        """The times of calls at the fixed rate, in microseconds and sorted."""
        return grpc_load.run(self.ports.service, envoy_files.SHOULD_RATE_LIMIT, self.bodies, self.rate, seconds)

    def floor(self):
        """PING commands of Redis, at the fixed rate."""
        with self.redis("near"):
            times = grpc_load.ping(self.ports.redis, self.rate, self.seconds)
        return times[len(times) // 2] / 1000, times[len(times) * 99 // 100] / 1000

    def direct(self, store):
        """The service alone."""
        with self.redis(store) as redis, self.service(store, self.cores.proxy) as service:
            self.call(0.5)
            if store == "frozen":
                redis.send_signal(signal.SIGSTOP)
                self.call(1)
            before = cpu_seconds(service.pid)
            times = self.call(self.seconds)
            cpu = (cpu_seconds(service.pid) - before) * 1e6 / len(times)
            most = self.most()
        return Measured(most, times[len(times) // 2], times[len(times) * 99 // 100], cpu, 0)

    def through_envoy(self, kind):
        """Requests through Envoy, with a filter, or with the service and this store."""
        uses_service = kind in STORES
        with contextlib.ExitStack() as programs:
            redis = programs.enter_context(self.redis(kind)) if uses_service else None
            service = programs.enter_context(self.service(kind, self.cores.others)) if uses_service else None
            envoy = programs.enter_context(self.envoy("service" if uses_service else kind))
            load = lambda seconds, rate: self.generator.http1(seconds, 64, rate, envoy_files.KEYS)  # noqa: E731
            # Envoy responds with 500 until it is connected to the service.
            load(0.5, self.rate)
            if kind == "frozen":
                redis.send_signal(signal.SIGSTOP)
                load(1, self.rate)
            before = [cpu_seconds(it.pid) if it else 0 for it in (envoy, service)]
            paced = load(self.seconds, self.rate)
            after = [cpu_seconds(it.pid) if it else 0 for it in (envoy, service)]
            cpu, service_cpu = ((late - early) * 1e6 / paced.responses for early, late in zip(before, after))
            if paced.denied_share > 0 or paced.failed:
                fail(f"{kind}: {paced.denied_share:.2%} of the requests are denied, {paced.failed} connections failed")
            most = load(self.seconds, 0)
        return Measured(most.successes / most.seconds, paced.p50, paced.p99, cpu, service_cpu)


def say(text):
    print(text, file=sys.stderr, flush=True)


def table(head, results, columns):
    """A table in Markdown: medians of the rounds."""
    rows = [[head, *columns]]
    for name, rounds in results.items():
        rows.append([name, *(text(median(value(one) for one in rounds)) for value, text in columns.values())])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| --- |" + " ---: |" * len(columns), *lines[1:]])


def columns(rate, of_envoy):
    def time_text(value):
        return f"{value / 1000:.2f}"

    def whole(value):
        return f"{value:,.0f}"

    found = {
        "requests/s" if of_envoy else "decisions/s": (lambda one: one.per_second, whole),
        f"p50 ms at {rate:,}/s": (lambda one: one.p50, time_text),
        f"p99 ms at {rate:,}/s": (lambda one: one.p99, time_text),
        f"CPU µs of {'Envoy' if of_envoy else 'tidegate'}": (lambda one: one.cpu, whole),
    }
    if of_envoy:
        found["CPU µs of tidegate"] = (lambda one: one.service_cpu, whole)
    return found


def main():
    enter_repository()
    require(("cc", "envoy", "h2load", "redis-server"))
    program = binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release"))
    direct = {label: [] for label in STORES.values()}
    through = {label: [] for label in [*FILTERS.values(), *(f"tidegate: {label}" for label in STORES.values())]}
    started, floors = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(directory, program)
        say(f"load average {load_average():.2f}; Envoy and the service are on core {sorted(bench.cores.proxy)} in turn")
        for number in range(int(os.environ.get("ROUNDS", "2"))):
            floors.append(bench.floor())
            for store, label in STORES.items():
                direct[label].append(bench.direct(store))
            for kind, label in [*FILTERS.items(), *((store, f"tidegate: {label}") for store, label in STORES.items())]:
                through[label].append(bench.through_envoy(kind))
            say(f"round {number + 1}: {time.monotonic() - started:.0f} s")
    p50, p99 = (median(values) for values in zip(*floors))
    print(f"{description()}; a PING of Redis, paced alike: p50 {p50:.2f} ms, p99 {p99:.2f} ms\n")
    print(table("the service alone", direct, columns(bench.rate, False)) + "\n")
    print(table("through Envoy", through, columns(bench.rate, True)))


if __name__ == "__main__":
    main()
