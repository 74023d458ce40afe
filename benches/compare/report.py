"""The tables: medians over the rounds with their ranges."""

from statistics import median


def number(value):
    """With three digits, or with a separator of thousands."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values):
    """The median, and in brackets the least and the largest value."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


class Columns:
    """The values of each round of a peer, by column."""

    def __init__(self, rounds, base):
        self.rounds, self.base = rounds, base

    def values(self, value):
        return spread([value(measured) for measured in self.rounds])

    def ratio(self, value):
        """Of each round, so that what slows a whole round down does not count."""
        pairs = zip(self.rounds, self.base)
        return spread([value(own) / max(1e-9, value(other)) for own, other in pairs])


def cost_columns(scenario):
    base = scenario.base
    columns = {
        "CPU us a request": lambda it: it.values(lambda one: one.cpu),
        f"x {base}": lambda it: it.ratio(lambda one: one.cpu),
        "requests/s": lambda it: it.values(lambda one: one.per_second),
        "denied": lambda it: f"{median(one.denied_share for one in it.rounds):.1%}",
    }
    if scenario.uses_redis:
        columns["CPU us of Redis"] = lambda it: it.values(lambda one: one.redis_cpu)
    columns["mean ms" if scenario.is_tls else "p50 ms"] = lambda it: it.values(lambda one: one.p50 / 1000)
    return columns


OVERLOAD_COLUMNS = {
    "200s/s": lambda it: it.values(lambda one: one.per_second),
    "x its own with 64": lambda it: spread([one.per_second / one.calm.per_second for one in it.rounds]),
    "refused": lambda it: f"{median(one.denied_share for one in it.rounds):.1%}",
    "p99 ms of 200s": lambda it: it.values(lambda one: one.p99 / 1000),
    "p99 ms with 64": lambda it: it.values(lambda one: one.calm.p99 / 1000),
}

MEMORY_COLUMNS = {
    "MiB of the process": lambda it: it.values(lambda one: one.memory.process / 2**20),
    "bytes for each key": lambda it: it.values(lambda one: one.memory.key),
    "KiB for each connection": lambda it: it.values(lambda one: one.memory.connection / 1024),
}


MEMORY_TLS_COLUMNS = {
    "MiB of the process": lambda it: it.values(lambda one: one.memory.process / 2**20),
    "KiB for each connection, HTTP/1.1": lambda it: it.values(lambda one: one.memory.connection / 1024),
    "HTTP/2": lambda it: it.values(lambda one: one.memory.connection_http2 / 1024),
}


def latency_columns(scenario):
    def column(share, name):
        return lambda it: it.values(lambda one: getattr(one.by_share[share], name) / 1000)

    return {f"{name} {share:.0%}": column(share, name) for name in ("p50", "p99") for share in scenario.shares}


def table(name, scenario, results):
    """The lines of one scenario. `results` has the rounds of each peer."""
    columns = cost_columns(scenario)
    if scenario.bound:
        columns = OVERLOAD_COLUMNS
    elif scenario.is_memory:
        columns = MEMORY_TLS_COLUMNS if scenario.is_memory_tls else MEMORY_COLUMNS
    elif scenario.shares:
        columns = latency_columns(scenario)
    rows = [["", *columns]]
    for peer, rounds in results.items():
        both = Columns(rounds, results.get(scenario.base, rounds))
        rows.append([peer, *(column(both) for column in columns.values())])
    if scenario.shares:
        capacity = median(one.per_second for one in next(iter(results.values())))
        yield f"\n{name}: {scenario.what} ({capacity:,.0f} requests/s); ms"
        rows = [list(row) for row in zip(*rows)]
    else:
        yield f"\n{name}: {scenario.what}"
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
    if not scenario.is_memory:
        yield disturbances(results)
    yield from (f"  {note}" for note in scenario.notes)


def disturbances(results):
    """What has made the figures less certain."""
    steal = [measured.steal for rounds in results.values() for measured in rounds]
    late = sum(step.late for rounds in results.values() for one in rounds for step in [one, *one.by_share.values()])
    lateness = f"; {late:,} requests were sent over 1 ms late by the load generator" if late else ""
    return f"  steal {median(steal):.1%}, at most {max(steal):.1%}{lateness}"
