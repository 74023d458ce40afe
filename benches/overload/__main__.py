#!/usr/bin/env python3
"""Measures proxies that get more load than their servers can serve: what is served in time, and how soon it ends.

    make bench-overload

Four servers with four slots each take 20 ms for a request on average, which is sleep (benches/common/slots.c): 800 requests a
second. Requests come in an open loop (benches/common/arrivals.c), from clients that give up after two seconds. Each proxy starts
anew for each scenario, with one worker and servers of its own. peers.py has the proxies and their files, scenarios.py the rows.
Proxies that are not installed are left out.

The table has medians over the rounds. Goodput are responses within twice the calm 99th percentile, which is measured in each
round through tidegate without `overload`, at half of the capacity.

Settings, as environment variables:
  ROUNDS=3   SCENARIOS=step,slow   PEERS=tidegate,envoy
  PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build   BASE_PORT=26000 (five ports)
  OUT=file for all measurements as JSON; those that it has already are kept   TABLES=such a file, whose table is printed
  DETAILS=file for all requests of the last scenario
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from machine import cpu_seconds, description, load_average, raise_open_files  # noqa: E402
from peers import PEERS, SLOTS, Place, version  # noqa: E402
from programs import HOST, binary, compiled, enter_repository, fail, require, running, write_lines  # noqa: E402
from scenarios import CALM, MILLISECONDS, ROWS, SCENARIOS, TIMEOUT, Request, Run, percentile_99  # noqa: E402


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The programs of a measurement."""

    def __init__(self, directory, program):
        self.place = Place(Path(directory), program, int(os.environ.get("BASE_PORT", "26000")))
        self.slots, self.arrivals = compiled("slots", directory), compiled("arrivals", directory)

    @contextlib.contextmanager
    def changes(self, scenario, start):
        """Changes the servers at their times, until the end of the block."""
        ended = threading.Event()

        def change():
            for at, (speed, milliseconds) in scenario.changes.items():
                if ended.wait(max(0, start + at - time.monotonic())):
                    return
                urllib.request.urlopen(f"http://{HOST}:{self.place.servers[0]}/set/{speed}/{milliseconds}", timeout=5).close()

        thread = threading.Thread(target=change)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def load(self, scenario, seed):
        """The requests of a scenario."""
        first, groups = 1, []
        for group in scenario.groups:
            groups.append(group.argument(first))
            first += group.clients
        options = ["-d", scenario.seconds, "-t", TIMEOUT, "-s", seed, self.place.proxy, *groups]
        done = subprocess.run([self.arrivals, *map(str, options)], capture_output=True, text=True)
        if done.returncode:
            fail(f"arrivals: {done.stderr}")
        lines = (line.split() for line in done.stdout.splitlines())
        return [Request(int(group), float(at), int(status), float(took)) for group, at, status, took in lines], int(done.stderr)

    def run(self, name, scenario, seed):
        """All requests of a scenario through a proxy."""
        servers = [self.slots, "-s", SLOTS, "-m", MILLISECONDS, *(["-c"] if scenario.is_constant else []), *self.place.servers]
        command, log = PEERS[name].command(self.place), self.place.directory / f"{name}.log"
        with contextlib.ExitStack() as programs:
            programs.enter_context(running(servers, self.place.servers[-1]))
            out = programs.enter_context(log.open("w"))
            proxy = programs.enter_context(running(command, self.place.proxy, out))
            programs.enter_context(self.changes(scenario, time.monotonic()))
            requests, late = self.load(scenario, seed)
            cpu = cpu_seconds(proxy.pid) / scenario.seconds
        statuses = {}
        for it in requests:
            statuses[it.status] = statuses.get(it.status, 0) + 1
        say(f"  {name}: {dict(sorted(statuses.items()))}, {late} sent late, {cpu:.0%} of a core, load {load_average():.1f}")
        if details := os.environ.get("DETAILS"):
            lines = (f"{it.group} {it.arrived:.6f} {it.status} {it.took:.6f}\n" for it in requests)
            Path(details).write_text("".join(lines))
        return requests

    def calm(self, is_constant, seed):
        """The calm 99th percentile in seconds."""
        requests = self.run("bare", CALM.constant() if is_constant else CALM, seed)
        return percentile_99([it.took for it in requests if it.status == 200])


def chosen(variable, names):
    """The names that a variable lists, or all."""
    listed = os.environ.get(variable)
    found = listed.split(",") if listed else list(names)
    if unknown := [name for name in found if name not in names]:
        fail(f"{variable} has {', '.join(unknown)}; there are {', '.join(names)}")
    return found


def measure(bench, names, scenarios, results):
    """One round: adds values to `results`, by row and proxy. Yields after each proxy."""
    calm, seed = {}, time.time_ns() % 1_000_000
    for label in scenarios:
        scenario = SCENARIOS[label]
        if scenario.is_constant not in calm:
            calm[scenario.is_constant] = bench.calm(scenario.is_constant, seed)
            say(f"calm 99th percentile: {calm[scenario.is_constant] * 1000:.1f} ms")
        say(label)
        for name in names:
            rows = {text: row for text, row in ROWS.items() if row.scenario == label and row.is_for(PEERS[name])}
            if not rows:
                continue
            run = Run(bench.run(name, scenario, seed), calm[scenario.is_constant])
            for text, row in rows.items():
                results.setdefault(text, {}).setdefault(name, []).append(row.value(run))
            yield


def table(results):
    """In Markdown: medians of the rounds, and a dash for what a proxy can't do or has not done."""
    names = [name for name in PEERS if any(name in row for row in results.values())]
    lines = ["| | " + " | ".join(PEERS[name].label for name in names) + " |", "| --- |" + " ---: |" * len(names)]
    for text, row in ROWS.items():
        cells = []
        for name in names:
            rounds = [value for value in results.get(text, {}).get(name, []) if value is not None]
            cells.append(row.text(median(rounds)) if rounds else "–")
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    enter_repository()
    if given := os.environ.get("TABLES"):
        print(table(json.loads(Path(given).read_text())["rows"]))
        return
    require(("cc",))
    raise_open_files()
    out, results = os.environ.get("OUT"), {}
    if out and Path(out).exists():
        results = json.loads(Path(out).read_text())["rows"]
    program = binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release"))
    names = [name for name in chosen("PEERS", PEERS) if PEERS[name].is_installed]
    scenarios = chosen("SCENARIOS", SCENARIOS)
    versions = ", ".join(f"{PEERS[name].label} {version(PEERS[name].version)}" for name in names if PEERS[name].version)
    about = description() + (f"; {versions}" if versions else "")
    for number in range(int(os.environ.get("ROUNDS", "3"))):
        say(f"round {number + 1}")
        with tempfile.TemporaryDirectory() as directory:
            for _ in measure(Bench(directory, program), names, scenarios, results):
                if out:
                    write_lines(out, {"about": {"machine": about}, "rows": results})
    print(f"{about}\n\n{table(results)}")


if __name__ == "__main__":
    main()
