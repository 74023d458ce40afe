"""The rows: what happens, and what is measured of it."""

from dataclasses import dataclass, field, replace
from typing import Callable

from peers import SERVERS, SLOTS

MILLISECONDS = 20
# Requests a second.
CAPACITY = SERVERS * SLOTS * 1000 / MILLISECONDS
# Seconds after which a client gives up.
TIMEOUT = 2


@dataclass(frozen=True)
class Group:
    """Clients with the same path: multiples of the capacity, each from a second on."""

    load: dict
    path: str = "/"
    clients: int = 50

    def argument(self, first):
        steps = ",".join(f"{at}={CAPACITY * load:.3f}" for at, load in self.load.items())
        return f"{self.path},{first},{self.clients},{steps}"


@dataclass(frozen=True)
class Scenario:
    """Requests to the proxies, and changes of the servers: the speed and the added milliseconds, from a second on."""

    groups: tuple
    seconds: int
    changes: dict = field(default_factory=dict)
    is_constant: bool = False

    def constant(self):
        """The same with service times that do not vary."""
        return replace(self, is_constant=True)


@dataclass(frozen=True)
class Request:
    group: int
    arrived: float
    status: int
    took: float


@dataclass(frozen=True)
class Run:
    """All requests of a scenario, and the calm 99th percentile in seconds."""

    requests: list
    calm_p99: float

    def between(self, start, end, group=None):
        return [it for it in self.requests if start <= it.arrived < end and group in (None, it.group)]

    def served(self, start, end, group=None):
        """The part that got a response of a server before its client gave up."""
        chosen = self.between(start, end, group)
        return sum(it.status == 200 for it in chosen) / max(1, len(chosen))

    def throughput(self, start, end):
        """Relative to the capacity."""
        return sum(it.status == 200 for it in self.between(start, end)) / (end - start) / CAPACITY

    def goodput(self, start, end):
        """Responses within twice the calm 99th percentile, relative to the capacity."""
        good = sum(it.status == 200 and it.took <= 2 * self.calm_p99 for it in self.between(start, end))
        return good / (end - start) / CAPACITY

    def p99(self, start, end):
        """Of the responses, relative to the calm one; none without responses."""
        took = [it.took for it in self.between(start, end) if it.status == 200]
        return percentile_99(took) / self.calm_p99 if took else None

    def seconds_until_served(self, start):
        """From a moment until the last request that was refused or given up after it."""
        return max((it.arrived - start for it in self.requests if it.arrived >= start and it.status != 200), default=0)


def percentile_99(values):
    return sorted(values)[(len(values) - 1) * 99 // 100]


CALM = Scenario((Group({0: 0.5}),), 15)
# When the load or the servers change.
START, END = 6, 28


def step():
    shares = ((0.9, "/", 50), (0.1, "/critical", 10))
    groups = (Group({0: 0.5 * share, START: 3 * share, END: 0.5 * share}, *rest) for share, *rest in shares)
    return Scenario(tuple(groups), END + 8)


STEADY = (Group({0: 0.8}),)
SCENARIOS = {
    "step": step(),
    "constant": step().constant(),
    "tenants": Scenario((Group({0: 0.126, START: 0.63}, clients=9), Group({0: 0.07, START: 0.7}, clients=1)), START + 20),
    "slow": Scenario(STEADY, START + 34, {START: (1 / 3, 0), START + 30: (1, 0)}),
    "cold": Scenario((Group({0: 3}),), 20),
    "latency": Scenario(STEADY, START + 37, {START: (1, 100)}),
}


def percent(value):
    return f"{value:.1%}".replace("%", " %")


def number(value):
    return f"{value:.1f}"


@dataclass(frozen=True)
class Row:
    """What is measured of a scenario, how it is written, and what a proxy must have for it."""

    scenario: str
    value: Callable
    text: Callable = percent
    needs: str = ""

    def is_for(self, peer):
        return not self.needs or getattr(peer, self.needs)


def lost(run, start, end):
    """Of what is offered to servers that are three times slower, beyond what they can't serve."""
    return (1 / 3 - run.throughput(start, end)) / 0.8


ROWS = {
    "from 10 s after a step to three times the capacity: goodput": Row("step", lambda run: run.goodput(START + 10, END)),
    "goodput in the first 10 s": Row("step", lambda run: run.goodput(START, START + 10)),
    "99th percentile of the responses, relative to calm": Row("step", lambda run: run.p99(START + 10, END), number),
    "`critical` requests, a tenth of the load: served": Row("step", lambda run: run.served(START, END, 1), percent, "has_priority"),
    "back to calm: seconds until nothing is refused": Row("step", lambda run: run.seconds_until_served(END), number),
    "nine clients at 70 % of their share beside one with ten times as much: they lose": Row(
        "tenants", lambda run: 1 - run.served(START, START + 20, 0)
    ),
    "servers three times slower for 30 s, at 0.8: lost beyond what can't be served": Row(
        "slow", lambda run: lost(run, START, START + 30)
    ),
    "the same in the last 10 s of them": Row("slow", lambda run: lost(run, START + 20, START + 30)),
    "cold start under three times the capacity: goodput in 10 s": Row("cold", lambda run: run.goodput(0, 10)),
    "the next 10 s": Row("cold", lambda run: run.goodput(10, 20)),
    "100 ms more that are not load, at 0.8: served in 30 s": Row("latency", lambda run: run.served(START, START + 30)),
    "from 30 s on": Row("latency", lambda run: run.served(START + 30, START + 37)),
    "responses that always take 20 ms: goodput": Row("constant", lambda run: run.goodput(START + 10, END)),
    "their 99th percentile, relative to calm": Row("constant", lambda run: run.p99(START + 10, END), number),
}
