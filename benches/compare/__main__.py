#!/usr/bin/env python3
"""Measures tidegate side by side with nginx, HAProxy and nginx with Lua and Redis, over the loopback interface only.

    make bench-compare

In each round each proxy is started, in rotating order, checked with one request, warmed up, and put under load. The main
figure is the CPU time that the processes of the proxy spend on a request, user and system, from /proc: wall-clock figures
depend more on the cores of the machine than on the proxy. The proxy has one worker and the last core for itself; load
generator, server and Redis share the other cores. Medians over the rounds are shown with the least and the largest value; a
ratio is that of one round. Peers that are not installed are left out, with a word on what to install.

scenarios.py says what a request of each scenario is, and what each proxy does and does not do for it.

Settings, as environment variables:
  ROUNDS=5   SECONDS_EACH=1.5   SCENARIOS="plain redis" (default: all)   PEERS="tidegate nginx" (default: all)
  PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build
  OUT=FILE (all results as JSON)   BASE_PORT=27400 (six ports from there on)
"""

import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from environment import Environment, Ports  # noqa: E402
from load import Generator  # noqa: E402
from machine import Cores, Moment, description, load_average, raise_open_files  # noqa: E402
from measure import Bench, WARM_UP_SECONDS  # noqa: E402
from peers import PEERS, version  # noqa: E402
from programs import binary, enter_repository, fail, require, write_certificate, write_lines  # noqa: E402
from report import table  # noqa: E402
from scenarios import IDLE_CONNECTIONS, SCENARIOS  # noqa: E402


def say(text):
    print(text, file=sys.stderr, flush=True)


def chosen(variable, all_of_them):
    names = os.environ.get(variable, " ".join(all_of_them)).split()
    for name in names:
        if name not in all_of_them:
            fail(f"{variable}: unknown {name}; there are {', '.join(all_of_them)}")
    return names


def installed(names):
    """Those peers that are there; a word on the others."""
    for name in names:
        if not PEERS[name].is_installed:
            say(f"{name} is left out; on Debian it needs: apt-get install {' '.join(PEERS[name].packages)}")
    return [name for name in names if PEERS[name].is_installed]


def require_tools(scenarios):
    # nginx is also the server behind the proxies.
    tools = {"cc", "nginx"}
    for scenario in scenarios:
        tools |= {"h2load"} if scenario.is_http2 else set()
        tools |= {"openssl"} if scenario.is_tls else set()
        tools |= {"redis-server"} if scenario.uses_redis else set()
    require(tools)


def minutes(rounds, seconds, peers, scenarios):
    """What the measurements take about."""
    total = 0
    for scenario in scenarios:
        if scenario.is_memory:
            continue
        steps = len(scenario.shares) or (2 if scenario.bound else 1)
        total += sum(peer in peers for peer in scenario.peers) * (steps * seconds + WARM_UP_SECONDS + 0.4)
    return rounds * total / 60


def run(bench, rounds, peers, scenarios):
    """The results by scenario and peer, one for each round."""
    results = {name: {peer: [] for peer in peers if peer in it.peers} for name, it in scenarios.items()}
    for at in range(rounds):
        for name, scenario in scenarios.items():
            if scenario.is_memory and at > 0:
                continue
            say(f"round {at + 1} of {rounds}: {name}")
            order = list(results[name])
            turned = order[at % len(order) :] + order[: at % len(order)] if order else []
            capacity = bench.capacity(scenario) if scenario.shares else 0
            for peer in turned:
                results[name][peer].append(bench.measure(peer, scenario, capacity))
    return results


def main():
    enter_repository()
    scenarios = {name: SCENARIOS[name] for name in chosen("SCENARIOS", SCENARIOS)}
    peers = installed(chosen("PEERS", PEERS))
    require_tools(scenarios.values())
    rounds, seconds = int(os.environ.get("ROUNDS", "5")), float(os.environ.get("SECONDS_EACH", "1.5"))
    tidegate = binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release"))
    cores = Cores.of_this_machine()
    if cores.is_shared:
        say("WARNING: one core only. Load, proxy and server share it, so compare CPU times and nothing else.")
    versions = [f"{version([str(tidegate), '--version'])}"]
    versions += [version(PEERS[name].version) for name in peers if PEERS[name].version]
    if any(scenario.is_memory for scenario in scenarios.values()) and raise_open_files() < 2 * IDLE_CONNECTIONS:
        say(f"memory is left out: it needs {2 * IDLE_CONNECTIONS} open files (ulimit -Hn)")
        scenarios = {name: scenario for name, scenario in scenarios.items() if not scenario.is_memory}
    start, began, load_before = time.monotonic(), Moment.now(), load_average()
    say(f"about {minutes(rounds, seconds, peers, scenarios.values()):.0f} minutes; {rounds} rounds of {seconds:g} s")
    with tempfile.TemporaryDirectory() as temporary:
        directory, ports = Path(temporary), Ports(int(os.environ.get("BASE_PORT", "27400")))
        # Workers of nginx, which are not root, connect to the Unix socket in it.
        directory.chmod(0o711)
        if any(scenario.is_tls for scenario in scenarios.values()):
            write_certificate(directory)
        generator = Generator(directory, ports.proxy, cores.others)
        bench = Bench(Environment(directory, tidegate, ports), cores, generator, seconds)
        with bench.upstream():
            results = run(bench, rounds, peers, scenarios)
    about = {
        "machine": description(),
        "versions": versions,
        "proxy core": sorted(cores.proxy),
        "other cores": sorted(cores.others),
        "load average before": load_before,
        "steal": round(Moment.now().steal_since(began), 4),
        "minutes": round((time.monotonic() - start) / 60, 1),
        "rounds": rounds,
        "seconds each": seconds,
    }
    for key, value in about.items():
        print(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    for name, scenario in scenarios.items():
        print("\n".join(table(name, scenario, results[name])))
    if out := os.environ.get("OUT"):
        plain = {name: {peer: [asdict(it) for it in its] for peer, its in it.items()} for name, it in results.items()}
        write_lines(out, {"about": about, "results": plain})


if __name__ == "__main__":
    main()
