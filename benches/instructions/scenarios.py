"""The scenarios: what is counted, and the configuration and the client of each."""

import enum
from dataclasses import dataclass


class Client(enum.Enum):
    """How requests are sent."""

    HTTP1 = "over kept connections"
    CONNECTION = "over a new connection for each request"
    TLS = "over kept connections with TLS"
    HTTP2 = "over kept connections with TLS and HTTP/2, one request of each connection at a time"


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    counts: str
    # Tables of the configuration, and the keys of the route.
    tables: str = ""
    route: str = ""
    access: str = "off"
    # The upstream of the route: a URL, or one of the tables.
    upstream: str = "http://{upstream}"
    client: Client = Client.HTTP1
    # Header lines of each request beside Host and X-Api-Key.
    headers: tuple = ()
    # Of each request, with its chunks if a header says so.
    body: bytes = b""
    status: int = 200
    # One request after the other, where the cost of a request depends on how many arrive together.
    is_sequential: bool = False

    @property
    def uses_redis(self):
        return "[store]" in self.tables


def limit(name, rate, burst, key):
    return f'[limits.{name}]\nrate = "{rate}"\nburst = {burst}\nkey = "{key}"\n'


def servers(balance):
    """An upstream with two servers."""
    return f'[upstreams.two]\nservers = ["http://{{upstream}}", "http://{{other_upstream}}"]\nbalance = "{balance}"\n'


# {admin} and {redis} are replaced by addresses, {upstream} and {other_upstream} by those of the server behind the proxy.
ADMIN = '[admin]\nlisten = "{admin}"\n'
CONSUMERS = '[consumers]\nfile = "consumers.toml"\n'
TRACING = '[tracing]\nendpoint = "http://{upstream}"\n'
# A generous timeout: the proxy is fifty times slower under valgrind.
REDIS = '[store]\nurl = "redis://{redis}"\ntimeout = "5s"\n'
DRAFT = '[answers]\nrate_headers = "draft-11"\n'
NO_HEADERS = '[answers]\nrate_headers = "none"\n'

ALLOWING = limit("l", "100000/s", 100000, "header:x-api-key")
DENYING = limit("l", "10/hour", 10, "header:x-api-key")
BY_CONSUMER = limit("l", "100000/s", 100000, "consumer")
SECOND = limit("second", "200000/s", 200000, "client_ip")
THIRD = limit("third", "300000/s", 300000, "client_ip")

# Above the number of connections, so that no request waits.
OVERLOAD = '[upstreams.calm]\nservers = ["http://{upstream}"]\noverload.min_limit = 64\n'
BODY = b"b" * 2048
ROUND_ROBIN = servers("round_robin")
HASH = servers("hash:header:x-api-key")

ONE_LIMIT = 'limits = ["l"]\n'
TWO_LIMITS = 'limits = ["l", "second"]\n'
THREE_LIMITS = 'limits = ["l", "second", "third"]\n'

TEN_HEADERS = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Referer: https://bench.example/index.html",
    "Cookie: session=6f1ed002ab5595859014ebf0951522d9; theme=dark",
    "Cache-Control: no-cache",
    "Sec-Fetch-Mode: navigate",
    "X-Tenant: north",
    "X-Correlation-Id: 4bf92f3577b34da6a3ce929d0e0e4736",
)

SCENARIOS = {
    "plain": Scenario("proxied, no limit"),
    "headers-10": Scenario("plain, with ten more request headers", headers=TEN_HEADERS),
    "allowed": Scenario("proxied, one limit by a header in the process, allowed", ALLOWING, ONE_LIMIT),
    "no-rate-headers": Scenario('allowed, with rate_headers = "none"', ALLOWING + NO_HEADERS, ONE_LIMIT),
    "draft-11": Scenario('allowed, with rate_headers = "draft-11"', ALLOWING + DRAFT, ONE_LIMIT),
    "two-limits": Scenario("allowed, with a second limit by the address", ALLOWING + SECOND, TWO_LIMITS),
    "three-limits": Scenario("two-limits, with a third limit of the same key", ALLOWING + SECOND + THIRD, THREE_LIMITS),
    "admin": Scenario("allowed, with the admin interface, which counts keys", ALLOWING + ADMIN, ONE_LIMIT),
    "consumer": Scenario("allowed, the limit is by consumer, known by its key", BY_CONSUMER + CONSUMERS, ONE_LIMIT),
    "denied": Scenario("denied by one limit in the process", DENYING, ONE_LIMIT, status=429),
    "redis": Scenario(
        "allowed, the limit is in Redis, with a call for each request", ALLOWING + REDIS, ONE_LIMIT, is_sequential=True
    ),
    "redis-denied": Scenario(
        "denied by a limit in Redis, whose denial is remembered", DENYING + REDIS, ONE_LIMIT, status=429
    ),
    "post": Scenario("plain, with a request body of 2 KiB", headers=("Content-Length: 2048",), body=BODY),
    "post-chunked": Scenario(
        "the same as one chunk; the server responds before its end, so each request opens a connection",
        headers=("Transfer-Encoding: chunked",),
        body=b"800\r\n" + BODY + b"\r\n0\r\n\r\n",
    ),
    "round-robin": Scenario("plain, with two servers that take turns", ROUND_ROBIN, upstream="two"),
    "hash": Scenario("plain, with two servers, chosen by the hash of a header", HASH, upstream="two"),
    "overload": Scenario("plain, with an upstream that has `overload`, below its limit", OVERLOAD, upstream="calm"),
    "logged": Scenario("plain, with the access log as JSON", access="json"),
    "traced": Scenario("plain, with one in a hundred requests traced", TRACING),
    "tls": Scenario("plain, over a kept connection with TLS", client=Client.TLS),
    "http2": Scenario("plain, over a kept connection with TLS and HTTP/2", client=Client.HTTP2),
    "connection": Scenario("plain, a new connection for each request", client=Client.CONNECTION),
}
