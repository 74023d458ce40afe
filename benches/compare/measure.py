"""One measurement: a proxy is started, checked with a request, warmed up, and put under load."""

import contextlib
import http.client
import os
import ssl
from dataclasses import dataclass, field

from environment import Environment
from load import Generator, Request, used_connection
from machine import Cores, Moment, cpu_seconds, memory_bytes
from peer_nginx import upstream_command
from peers import PEERS
from programs import HOST, compiled, fail, pinned
from scenarios import IDLE_CONNECTIONS, IDLE_TLS_CONNECTIONS, MEMORY_KEYS, Handshake, Store

CONNECTIONS = 64
WARM_UP_SECONDS = 0.5
# In each direction.
REDIS_MILLISECONDS = 1
SERVER_MILLISECONDS = 5


@dataclass(frozen=True)
class Memory:
    """Bytes of a process after some load, and for each key and idle connection."""

    process: float
    # None over TLS.
    key: float | None
    connection: float
    # With HTTP/2.
    connection_http2: float | None = None


@dataclass(frozen=True)
class Measured:
    """What a load has cost and brought. Times are in microseconds."""

    cpu: float
    redis_cpu: float
    per_second: float
    p50: float
    p99: float
    denied_share: float
    steal: float
    # What the load generator itself has sent too late.
    late: int = 0
    # The same with CONNECTIONS instead of an overload, and by share of the capacity.
    calm: "Measured | None" = None
    memory: Memory | None = None
    by_share: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    environment: Environment
    cores: Cores
    generator: Generator
    seconds: float

    def process(self, command, port, cores, name):
        """A process on some cores, which writes to a file, until the end of the block."""
        return pinned(command, port, cores, self.environment.directory / f"{name}.out")

    def upstream(self):
        command = upstream_command(self.environment)
        return self.process(command, self.environment.ports.upstream, self.cores.others, "upstream")

    @contextlib.contextmanager
    def redis(self, scenario):
        """Redis, if the scenario uses one, behind a relay if it is far."""
        if not scenario.uses_redis:
            yield None
            return
        ports = self.environment.ports
        options = ["--bind", HOST, "--port", str(ports.redis), "--save", "", "--appendonly", "no"]
        with self.process(["redis-server", *options], ports.redis, self.cores.others, "redis") as redis:
            if scenario.limit.store != Store.FAR:
                yield redis
                return
            with self.relay(ports.far_redis, ports.redis, REDIS_MILLISECONDS):
                yield redis

    def relay(self, port, target, milliseconds):
        program = compiled("delay", self.environment.directory)
        return self.process([str(program), str(port), str(target), str(milliseconds)], port, self.cores.others, "delay")

    def slow_server(self, scenario):
        """The delay of the server, if the scenario has one."""
        ports = self.environment.ports
        is_slow = scenario.bound is not None
        return self.relay(ports.slow_upstream, ports.upstream, SERVER_MILLISECONDS) if is_slow else contextlib.nullcontext()

    @contextlib.contextmanager
    def proxy(self, peer, scenario):
        command = PEERS[peer].command(self.environment, scenario)
        cores = self.cores.proxy if scenario.workers == 1 else self.cores.proxy | self.cores.others
        with self.process(command, self.environment.ports.proxy, cores, peer) as process:
            check(peer, self.environment.ports.proxy, scenario)
            yield process

    def measure(self, peer, scenario, capacity):
        if scenario.is_memory:
            memory = self.memory_tls if scenario.is_memory_tls else self.memory
            return Measured(0, 0, 0, 0, 0, 0, 0, memory=memory(peer, scenario))
        with self.slow_server(scenario), self.redis(scenario) as redis, self.proxy(peer, scenario) as proxy:
            self.load(scenario, WARM_UP_SECONDS)
            if scenario.shares:
                steps = {share: self.cost(proxy, redis, scenario, rate=share * capacity) for share in scenario.shares}
                return Measured(0, 0, capacity, 0, 0, 0, max(step.steal for step in steps.values()), by_share=steps)
            if scenario.bound:
                calm = self.cost(proxy, redis, scenario, connections=scenario.bound)
                return self.cost(proxy, redis, scenario, connections=round(scenario.bound * scenario.overload), calm=calm)
            measured = self.cost(proxy, redis, scenario)
        is_wrong = measured.denied_share < 0.9 if scenario.is_denied else measured.denied_share > 0.001
        if is_wrong:
            fail(f"{peer} denies {measured.denied_share:.1%}")
        return measured

    def cost(self, proxy, redis, scenario, calm=None, **load):
        before, start = [cpu_seconds(it.pid) if it else 0 for it in (proxy, redis)], Moment.now()
        result = self.load(scenario, self.seconds, **load)
        after, end = [cpu_seconds(it.pid) if it else 0 for it in (proxy, redis)], Moment.now()
        cpu, redis_cpu = ((late - early) * 1e6 / result.responses for early, late in zip(before, after))
        if result.failed > result.responses / 1000:
            fail(f"{result.failed} of {result.responses} connections have failed")
        per_second, denied = result.successes / result.seconds, result.denied_share
        # Where nearly all are denied, the responses count.
        per_second = result.responses / result.seconds if scenario.is_denied else per_second
        times = (result.p50, result.p99)
        return Measured(cpu, redis_cpu, per_second, *times, denied, end.steal_since(start), result.late, calm)

    def load(self, scenario, seconds, connections=CONNECTIONS, rate=0):
        if scenario.is_http2:
            return self.generator.http2(seconds)
        if scenario.handshake:
            return self.generator.handshakes(seconds, scenario.handshake.value)
        keys = scenario.limit.keys if scenario.limit else 0
        request = Request(
            scenario.path, scenario.headers, scenario.request_bytes, scenario.is_chunked, scenario.is_fresh
        )
        return self.generator.http1(seconds, connections, rate, keys, request=request)

    def memory(self, peer, scenario):
        with self.proxy(peer, scenario) as proxy:
            self.generator.http1(WARM_UP_SECONDS, CONNECTIONS)
            empty = memory_bytes(proxy.pid)
            self.generator.http1(600, CONNECTIONS, keys=MEMORY_KEYS, most=MEMORY_KEYS)
            keys = memory_bytes(proxy.pid) - empty
        with self.proxy(peer, scenario) as proxy:
            self.generator.http1(WARM_UP_SECONDS, CONNECTIONS)
            connection = self.connection_memory(proxy, IDLE_CONNECTIONS)
        return Memory(empty, keys / MEMORY_KEYS, connection)

    def memory_tls(self, peer, scenario):
        found = []
        for protocol in ("http/1.1", "h2"):
            with self.proxy(peer, scenario) as proxy:
                self.generator.handshakes(1, Handshake.FULL.value)
                empty = memory_bytes(proxy.pid)
                found.append(self.connection_memory(proxy, IDLE_TLS_CONNECTIONS, protocol))
        return Memory(empty, None, *found)

    def connection_memory(self, proxy, count, protocol=None):
        """What an idle connection takes."""
        before = memory_bytes(proxy.pid)
        streams = [used_connection(self.environment.ports.proxy, protocol) for _ in range(count)]
        taken = memory_bytes(proxy.pid) - before
        for stream in streams:
            stream.close()
        return taken / count

    def capacity(self, scenario):
        """The requests per second of nginx, from which shares are counted."""
        with self.proxy("nginx", scenario):
            self.load(scenario, WARM_UP_SECONDS)
            result = self.load(scenario, self.seconds)
        return result.successes / result.seconds


def check(peer, port, scenario):
    """One request: the status is 200, and the body is that of the server."""
    if scenario.is_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(HOST, port, timeout=10, context=context)
    else:
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
    connection.request("GET", scenario.path, headers={"X-Api-Key": "first"})
    response = connection.getresponse()
    length = len(response.read())
    connection.close()
    has_id = response.getheader("x-request-id") or peer in ("nginx-bare", "relay")
    if (response.status, length) != (200, scenario.body_bytes) or not has_id:
        fail(f"{peer} responds {response.status} with {length} bytes and the headers {response.getheaders()}")
