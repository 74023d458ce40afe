"""The scenarios: what a request is, and what each proxy does for it."""

import enum
from dataclasses import dataclass


class Store(enum.Enum):
    """Where a limit counts."""

    PROCESS = "in the process"
    NEAR = "in Redis on this machine"
    FAR = "in Redis, 2 ms away"


@dataclass(frozen=True)
class Limit:
    """A limit by the header X-Api-Key, and how many keys the load has."""

    keys: int
    rate: int
    burst: int
    # Of the rate: "s" or "min".
    unit: str = "s"
    store: Store = Store.PROCESS


@dataclass(frozen=True)
class Scenario:
    """A table of the output."""

    what: str
    # What each proxy does and does not do.
    notes: tuple = ()
    limit: Limit | None = None
    peers: tuple = ("tidegate", "nginx", "haproxy")
    # Whose figures the others are divided by.
    base: str = "nginx"
    is_logged: bool = False
    # Whether the proxies connect to the server by a Unix socket.
    is_unix: bool = False
    is_fresh: bool = False
    is_http2: bool = False
    is_denied: bool = False
    # Requests that a proxy has at a time at most, in the service and waiting for it; none: no bound.
    bound: int | None = None
    # Memory is measured, in one round: it hardly differs between rounds.
    is_memory: bool = False
    # Shares of the capacity at which the latency is measured.
    shares: tuple = ()

    @property
    def uses_redis(self):
        return self.limit is not None and self.limit.store != Store.PROCESS


# No request comes near it.
WIDE = {"keys": 10_000, "rate": 100, "burst": 200}
BOUND = 64
MEMORY_KEYS = 100_000
IDLE_CONNECTIONS = 5000
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)

ALGORITHMS = (
    "tidegate: token bucket by key, exact, with X-RateLimit-Limit, -Remaining and -Reset in each response.",
    "nginx: limit_req, a leaky bucket by key; a constant X-RateLimit-Limit, since it can't say what remains.",
    "HAProxy: http_req_rate of a stick table, an estimate over a sliding second, with the three headers.",
)
REDIS = (
    "tidegate: requests of one moment share a call; the decision is by the clock of Redis and exact over all proxies.",
    "nginx-lua: one EVALSHA of a token bucket in Lua for each request, over kept connections, as API gateways on OpenResty do.",
)
FULL = (
    "Clients that are refused send their next request at once, so that refusals take up the core of the proxy.",
    "tidegate: max_connections = 48 and max_pending = 16 of the upstream. HAProxy: maxconn 48, and a deny rule from queue 16 on.",
    "nginx: limit_conn 64, since it can't queue requests: all 64 are at the server. All: others get 503.",
)

SCENARIOS = {
    "plain": Scenario(
        "forwarded over kept connections, no limit, no access log",
        (
            "All: X-Request-Id, X-Forwarded-For, -Proto, -Host, Forwarded and Via to the server; X-Request-Id to the client.",
            "tidegate besides: rejects ambiguous requests, normalizes paths, removes forged X-Forwarded-*, times bodies.",
        ),
    ),
    "unix": Scenario(
        "plain, the server is on a Unix socket",
        ("All: kept connections to the socket. Those of clients are over TCP.",),
        is_unix=True,
    ),
    "allowed": Scenario("a limit by a header, 10,000 keys, all allowed", ALGORITHMS, Limit(**WIDE)),
    "denied": Scenario(
        "the same limit, one key far above it, nearly all denied", ALGORITHMS, Limit(1, 10, 10), is_denied=True
    ),
    "logged": Scenario(
        "plain, with a line of JSON for each request in a file",
        (
            "All: time, client, method, host, target, status, bytes, duration, request id, server and its time.",
            "tidegate: lines of a worker are written together within 10 ms. nginx: with buffer=64k flush=1s.",
            "HAProxy: one write for each line, since it has no buffer for files.",
        ),
        is_logged=True,
    ),
    "connection": Scenario(
        "plain, a new TCP connection for each request",
        ("All: the connection to the server is kept.",),
        is_fresh=True,
    ),
    "http2": Scenario(
        "plain, over HTTP/2 with TLS 1.3, 16 connections with 4 streams each",
        ("All: HTTP/1.1 to the server. tidegate: rustls; nginx and HAProxy: OpenSSL.",),
        is_http2=True,
    ),
    "redis": Scenario(
        "a limit in Redis on this machine, 10,000 keys, all allowed",
        REDIS,
        Limit(**WIDE, store=Store.NEAR),
        ("tidegate", "nginx-lua"),
        "nginx-lua",
    ),
    "redis-far": Scenario(
        "the same with 2 ms to Redis and back",
        REDIS,
        Limit(**WIDE, store=Store.FAR),
        ("tidegate", "nginx-lua"),
        "nginx-lua",
    ),
    "overload": Scenario(
        f"a server that takes 10 ms, {BOUND} requests at a time at most, {BOUND * 3 // 2} connections that send without a pause",
        FULL,
        bound=BOUND,
    ),
    "latency": Scenario(
        "plain, requests that arrive at random, at shares of the throughput that nginx reaches here",
        (
            "The latency counts from the arrival of a request, also if it has to wait for one of 64 connections.",
            "The same rates for all. At the highest, load generator and server, which share the other cores, add most of it.",
        ),
        shares=LOADS,
    ),
    "memory": Scenario(
        f"{MEMORY_KEYS:,} keys of a limit, and {IDLE_CONNECTIONS:,} idle connections; the proportional set size",
        (
            "Each connection has had a response. The kernel's memory for sockets comes on top, and is the same for all.",
            "nginx: keys are in a zone of shared memory whose size is fixed, as is the number of HAProxy's entries.",
        ),
        Limit(MEMORY_KEYS, 1, 1_000_000, "min"),
        is_memory=True,
    ),
}
