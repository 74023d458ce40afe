"""What grows, and how the instructions of a request are counted for each size."""

from dataclasses import dataclass, field
from typing import Callable

from programs import HOST
from scenarios import Scenario

BALANCES = ("round_robin", "least_requests", "power_of_two", "hash")
KIB, MIB = 1024, 1024 * 1024
BODY_LABELS = {0: "0", KIB: "1 KiB", 16 * KIB: "16 KiB", 128 * KIB: "128 KiB", MIB: "1 MiB"}


@dataclass(frozen=True)
class Setup:
    """The configuration of the proxy, the bytes of the response, and further header lines of the request."""

    tables: str = ""
    route: str = ""
    upstream: str = ""
    servers: int = 1
    body_bytes: int = 128
    headers: tuple = ()

    @property
    def scenario(self):
        return Scenario("", headers=self.headers)

    def config(self, ports):
        servers = ", ".join(f'"http://127.0.0.{at + 1}:{ports.upstream}"' for at in range(self.servers))
        return (
            f'workers = 1\n[[listeners]]\naddress = "{HOST}:{ports.proxy}"\nmax_connections = 20000\n'
            f'idle_timeout = "600s"\n{self.tables}[[routes]]\npath = "/*"\n{self.route}upstream = "up"\n'
            f"[upstreams.up]\nservers = [{servers}]\n{self.upstream}"
            f'[log]\naccess = "off"\nlevel = "error"\n'
        )

    def upstream_config(self, ports):
        listeners = "".join(f'[[listeners]]\naddress = "127.0.0.{at + 1}:{ports.upstream}"\n' for at in range(self.servers))
        body = "s" * self.body_bytes
        respond = f'[[routes]]\npath = "/*"\nrespond = {{ status = 200, body = "{body}" }}\n'
        return f'workers = 1\n{listeners}{respond}[log]\naccess = "off"\n'


@dataclass(frozen=True)
class Growth:
    """A picture of counted instructions: a line for each setup, by size."""

    title: str
    x: str
    sizes: tuple
    lines: dict
    is_log_x: bool = False
    labels: dict = field(default_factory=dict)
    y: str = "instructions of a request"


def routes(count):
    """The route of the request is the last one."""
    others = (f'[[routes]]\npath = "/service/{at}/items/*"\nupstream = "up"\n' for at in range(count - 1))
    return Setup(tables="".join(others))


def limits(key: str) -> Callable:
    def setup(count):
        numbers = range(1, count + 1)
        tables = (f'[limits.l{at}]\nrate = "{at}00000/s"\nburst = {at}00000\nkey = "{key}"\n' for at in numbers)
        names = ", ".join(f'"l{at}"' for at in numbers)
        return Setup(tables="".join(tables), route=f"limits = [{names}]\n")

    return setup


def servers(balance):
    def setup(count):
        method = "hash:header:x-api-key" if balance == "hash" else balance
        return Setup(upstream=f'balance = "{method}"\n', servers=count)

    return setup


def headers(count):
    return Setup(headers=tuple(f"X-Header-{at}: value {at} of a request" for at in range(count)))


GROWTHS = {
    "routes": Growth("Routes", "routes", (1, 10, 100, 1000, 10_000), {"tidegate": routes}, is_log_x=True),
    "limits": Growth(
        "Limits of a route, in the process",
        "limits",
        (0, 1, 2, 3, 4, 6, 8),
        {"of one key": limits("header:x-api-key")},
    ),
    "servers": Growth(
        "Servers of an upstream",
        "servers",
        (1, 3, 10, 30, 100),
        {balance: servers(balance) for balance in BALANCES},
        is_log_x=True,
    ),
    "headers": Growth("Request headers", "headers besides Host and X-Api-Key", (0, 10, 20, 30, 40, 50), {"tidegate": headers}),
    "bodies": Growth(
        "Response bodies, instructions",
        "body",
        tuple(BODY_LABELS),
        {"tidegate": lambda size: Setup(body_bytes=size)},
        is_log_x=True,
        labels=BODY_LABELS,
    ),
}
