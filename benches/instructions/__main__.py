#!/usr/bin/env python3
"""Counts the instructions that tidegate spends on a request in user space, with valgrind's callgrind.

    make bench-instructions

Unlike times, instruction counts hardly depend on the load of the machine, so two of them can be compared: the figures
are shown beside those of BASELINE, and rows that differ from it by more than 3 % are listed below the table. Counts of
another build profile, compiler or processor differ by more than that, so the baseline records these, and a difference
is reported. With STRICT=1 the exit status is 1 if a row is more than 3 % above the baseline, or if the two can't be
compared. After a change that is meant to move figures, OUT=benches/baseline.json records the new ones.

What each scenario counts is in scenarios.py. The number of requests is bounded; all traffic stays on the loopback
interface. The upstream is a second tidegate with a `respond` route.

Settings, as environment variables:
  SCENARIOS="plain tls redis" (default: all)   CONNECTIONS=16   ROUNDS=60 (requests for each connection)
  PROFILE=release (or quick: builds faster)    TIDEGATE=path of a binary in target/PROFILE, instead of a build
  BASELINE=FILE (default benches/baseline.json; empty: none)   OUT=FILE   STRICT=1
  BASE_PORT=27500 (five ports from there on)
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from baseline import Baseline, Build, compare, print_row  # noqa: E402
from callgrind import count  # noqa: E402
from processes import Ports, proxy_config, redis, upstream  # noqa: E402
from programs import binary, enter_repository, fail, require  # noqa: E402
from scenarios import SCENARIOS, Client  # noqa: E402


def tools_of(scenarios):
    """The programs that these scenarios need."""
    tools = {"valgrind", "callgrind_control"}
    for scenario in scenarios:
        tools |= {Client.TLS: {"openssl"}, Client.HTTP2: {"openssl", "h2load"}}.get(scenario.client, set())
        tools |= {"redis-server"} if scenario.uses_redis else set()
    return tools


def chosen_scenarios():
    names = os.environ.get("SCENARIOS", " ".join(SCENARIOS)).split()
    for name in names:
        if name not in SCENARIOS:
            fail(f"unknown scenario {name}; there are {', '.join(SCENARIOS)}")
    return {name: SCENARIOS[name] for name in names}


def main():
    enter_repository()
    scenarios = chosen_scenarios()
    require(tools_of(scenarios.values()))
    tidegate = binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release"))
    build = Build.of(tidegate)
    baseline = Baseline.read(os.environ.get("BASELINE", "benches/baseline.json"))
    connections, rounds = int(os.environ.get("CONNECTIONS", "16")), int(os.environ.get("ROUNDS", "60"))
    ports = Ports(int(os.environ.get("BASE_PORT", "27500")))
    counts = {}
    with tempfile.TemporaryDirectory() as temporary, upstream(tidegate, ports, Path(temporary)):
        print_row("scenario", "instructions", "baseline", "change", "what is counted")
        for name, scenario in scenarios.items():
            directory = Path(temporary) / name
            directory.mkdir()
            config = proxy_config(scenario, ports, directory)
            with redis(scenario, ports):
                counts[name] = count(tidegate, config, scenario, (connections, rounds), ports)
            print_row(name, counts[name], baseline.count(name), baseline.change(name, counts[name]), scenario.counts)
    if out := os.environ.get("OUT"):
        Baseline(build, counts).write(out)
    is_acceptable = compare(baseline, build, counts)
    if os.environ.get("STRICT", "0") not in ("", "0") and not is_acceptable:
        sys.exit(1)


if __name__ == "__main__":
    main()
