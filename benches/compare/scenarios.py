"""The scenarios: what a request is, and what each proxy does for it."""

import enum
from dataclasses import dataclass


class Store(enum.Enum):
    """Where a limit counts."""

    PROCESS = "in the process"
    NEAR = "in Redis on this machine"
    FAR = "in Redis, 2 ms away"


class Handshake(enum.Enum):
    """How each connection over TLS 1.3 begins."""

    FULL = "-new"
    RESUMED = "-reuse"


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
    # Whose figures the others are divided by: "nginx" does the same work as tidegate, "nginx-bare" only forwards.
    base: str = "nginx"
    # What is requested, and the bytes of the body of the response.
    path: str = "/some/path"
    body_bytes: int = 128
    # Of the request.
    headers: tuple = ()
    request_bytes: int = 0
    is_chunked: bool = False
    workers: int = 1
    is_logged: bool = False
    # Whether the proxies connect to the server by a Unix socket.
    is_unix: bool = False
    is_fresh: bool = False
    is_http2: bool = False
    # Whether the proxies speak HTTP/2 with the server.
    is_upstream_http2: bool = False
    handshake: Handshake | None = None
    is_denied: bool = False
    # Requests that a proxy has at a time at most, in the service and waiting for it; none: no bound.
    bound: int | None = None
    # How many connections send for each request of that bound.
    overload: float = 1.5
    # Memory is measured, in one round: it hardly differs between rounds.
    is_memory: bool = False
    # The same of idle connections over TLS, with HTTP/1.1 and HTTP/2.
    is_memory_tls: bool = False
    # Shares of the capacity at which the latency is measured.
    shares: tuple = ()

    @property
    def is_tls(self):
        return self.is_http2 or self.handshake is not None or self.is_memory_tls

    @property
    def uses_redis(self):
        return self.limit is not None and self.limit.store != Store.PROCESS


# No request comes near it.
WIDE = {"keys": 10_000, "rate": 100, "burst": 200}
BOUND = 64
MEMORY_KEYS = 100_000
IDLE_CONNECTIONS = 5000
IDLE_TLS_CONNECTIONS = 1000
ALL = ("tidegate", "nginx", "nginx-bare", "haproxy", "relay")
SMALL_BODY, LARGE_BODY, REQUEST_BODY = 16 << 10, 1 << 20, 2 << 10
BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br",
    "Referer: https://www.bench.example/start/of/the/visit",
    "Cookie: session=4f1d0cbb3a5e48f29b1c7a30d6e2f9a1; theme=dark; consent=yes",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: same-origin",
    "Priority: u=1",
)
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
BARE = (
    "nginx: sets the same headers as tidegate. nginx-bare: only forwards. relay: passes bytes on and parses nothing, with",
    "a connection to the server for each of the client: what the kernel takes at least.",
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
            *BARE,
        ),
        peers=ALL,
    ),
    "workers-2": Scenario("plain, with two workers on all cores", BARE, peers=ALL, workers=2),
    "browser": Scenario("plain, with the ten request headers of a browser", BARE, peers=ALL, headers=BROWSER),
    "body-16k": Scenario(
        "plain, with a response of 16 KiB", BARE, peers=ALL, path="/bodies/small", body_bytes=SMALL_BODY
    ),
    "body-1m": Scenario("plain, with a response of 1 MiB", BARE, peers=ALL, path="/bodies/large", body_bytes=LARGE_BODY),
    "post": Scenario("plain, POST with a body of 2 KiB", BARE, peers=ALL, request_bytes=REQUEST_BODY),
    "post-chunked": Scenario(
        "the same without Content-Length, as one chunk", BARE, peers=ALL, request_bytes=REQUEST_BODY, is_chunked=True
    ),
    "unix": Scenario(
        "plain, the server is on a Unix socket",
        ("All: kept connections to the socket. Those of clients are over TCP.",),
        is_unix=True,
    ),
    "allowed": Scenario(
        "a limit by a header, 10,000 keys, all allowed",
        (*ALGORITHMS, "nginx-bare: the limit as well, but no other header."),
        Limit(**WIDE),
        ("tidegate", "nginx", "nginx-bare", "haproxy"),
    ),
    "denied": Scenario(
        "the same limit, one key far above it, nearly all denied",
        (*ALGORITHMS, "nginx-bare: the limit as well, but no other header."),
        Limit(1, 10, 10),
        ("tidegate", "nginx", "nginx-bare", "haproxy"),
        is_denied=True,
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
        ("All but the relay: the connection to the server is kept.",),
        peers=ALL,
        is_fresh=True,
    ),
    "tls-full": Scenario(
        "a new connection over TLS 1.3 for each request, one at a time",
        ("All: a certificate with an ECDSA key. tidegate: rustls; nginx and HAProxy: OpenSSL.",),
        handshake=Handshake.FULL,
    ),
    "tls-resumed": Scenario(
        "the same, with the session of the connection before",
        ("All: session tickets.",),
        handshake=Handshake.RESUMED,
    ),
    "http2": Scenario(
        "plain, over HTTP/2 with TLS 1.3, 16 connections with 4 streams each",
        ("All: HTTP/1.1 to the server. tidegate: rustls; nginx and HAProxy: OpenSSL.",),
        is_http2=True,
    ),
    "upstream-http2": Scenario(
        "plain, over HTTP/2 without TLS to the server",
        ("nginx can't.",),
        peers=("tidegate", "haproxy"),
        base="haproxy",
        is_upstream_http2=True,
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
    "overload-5": Scenario(f"the same with {BOUND * 5} connections", FULL, bound=BOUND, overload=5),
    "overload-16": Scenario(f"the same with {BOUND * 16} connections", FULL, bound=BOUND, overload=16),
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
    "memory-tls": Scenario(
        f"{IDLE_TLS_CONNECTIONS:,} idle connections over TLS 1.3, with HTTP/1.1 and with HTTP/2; the proportional set size",
        ("Each connection has had a response.",),
        is_memory=True,
        is_memory_tls=True,
    ),
}
