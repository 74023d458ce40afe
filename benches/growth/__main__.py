#!/usr/bin/env python3
"""Measures how the cost of a request grows with routes, limits, keys, connections, servers, headers and bodies, and draws it.

    make bench-growth

Instructions in user space are counted with valgrind's callgrind, as by `make bench-instructions`. CPU time and memory (the
proportional set size) are those of a process under load, from /proc. The points are written to benches/growth.json, and the
pictures drawn from it; those of the latency from benches/comparison.json, which `OUT=benches/comparison.json
make bench-compare` writes.

Settings, as environment variables:
  ONLY="routes keys" (default: all; the others keep their points)   DRAW=DIRECTORY (draw only, into that directory)
  SECONDS_EACH=2   ROUNDS=30   PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build
  BASE_PORT=27600 (four ports from there on)
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

BENCHES = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(BENCHES / "common"), str(BENCHES / "instructions")]

from baseline import Build  # noqa: E402
from callgrind import count  # noqa: E402
from load import Generator  # noqa: E402
from machine import Cores, description, raise_open_files  # noqa: E402
from picture import Chart, draw  # noqa: E402
from processes import Ports  # noqa: E402
from programs import binary, enter_repository, fail, require, running, write_lines  # noqa: E402
from sizes import BODY_LABELS, GROWTHS  # noqa: E402
from usage import Usage  # noqa: E402

POINTS, COMPARISON, PICTURES = Path("benches/growth.json"), Path("benches/comparison.json"), Path("docs/pictures")
MEASURED = [*GROWTHS, "keys", "connections", "body-times"]


def counted(growth, tidegate, ports, rounds):
    """The points of each line: size and instructions."""
    lines = {}
    for name, setup in growth.lines.items():
        lines[name] = []
        for size in growth.sizes:
            with tempfile.TemporaryDirectory() as temporary:
                chosen, config = setup(size), Path(temporary) / "tidegate.toml"
                config.write_text(chosen.config(ports))
                server = Path(temporary) / "upstream.toml"
                server.write_text(chosen.upstream_config(ports))
                with running([str(tidegate), "run", "-c", str(server)], ports.upstream):
                    instructions = count(tidegate, config, chosen.scenario, (16, rounds), ports)
            print(f"{growth.title}, {name}, {size:,}: {instructions:,} instructions", flush=True)
            lines[name].append((size, instructions))
    return lines


def used(name, usage):
    """The points of memory in MiB, or of CPU time in microseconds."""
    points = {"keys": usage.keys, "connections": usage.connections, "body-times": usage.bodies}[name]()
    print(f"{name}: {points}", flush=True)
    return {"tidegate": points}


def measure(names, tidegate):
    found = json.loads(POINTS.read_text()) if POINTS.exists() else {"about": {}, "points": {}}
    ports, rounds = Ports(int(os.environ.get("BASE_PORT", "27600"))), int(os.environ.get("ROUNDS", "30"))
    raise_open_files()
    with tempfile.TemporaryDirectory() as temporary:
        directory, cores = Path(temporary), Cores.of_this_machine()
        generator = Generator(directory, ports.proxy, cores.others)
        seconds = float(os.environ.get("SECONDS_EACH", "2"))
        usage = Usage(tidegate, directory, ports, cores, generator, seconds)
        for name in names:
            if name in GROWTHS:
                found["points"][name] = counted(GROWTHS[name], tidegate, ports, rounds)
            else:
                found["points"][name] = used(name, usage)
            found["about"] = {"machine": description(), **asdict(Build.of(tidegate))}
            write_lines(POINTS, found)


def charts():
    """The charts by the names of their files."""
    points = json.loads(POINTS.read_text())["points"]
    many = {"is_log_x": True}
    for name, it in GROWTHS.items():
        if name in points:
            yield name, Chart(it.title, it.x, it.y, points[name], it.is_log_x, labels=it.labels)
    usages = {
        "keys": ("Memory by keys of a token bucket", "keys", "MiB of the process", many),
        "connections": ("Memory by idle connections", "connections", "MiB of the process", {}),
        "body-times": ("Response bodies, CPU time", "body", "µs of a request", {**many, "labels": BODY_LABELS}),
    }
    for name, (title, x, y, more) in usages.items():
        if name in points:
            yield name, Chart(title, x, y, points[name], **more)
    if COMPARISON.exists():
        yield from latency_charts(json.loads(COMPARISON.read_text())["results"]["latency"])


def latency_charts(results):
    for key, words in (("p50", "Median latency by load"), ("p99", "99th percentile of the latency by load")):
        lines = {}
        for peer, rounds in results.items():
            shares = rounds[0]["by_share"]
            lines[peer] = [(float(it) * 100, median(one["by_share"][it][key] for one in rounds) / 1000) for it in shares]
        yield f"latency-{key}", Chart(words, "% of the throughput of nginx", "ms", lines, is_log_y=True)


def main():
    enter_repository()
    directory = Path(os.environ.get("DRAW", ""))
    if "DRAW" not in os.environ:
        require(("valgrind", "cc"))
        names = os.environ.get("ONLY", " ".join(MEASURED)).split()
        if unknown := [name for name in names if name not in MEASURED]:
            fail(f"unknown {', '.join(unknown)}; there are {', '.join(MEASURED)}")
        measure(names, binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release")))
        directory = PICTURES
    for name, chart in charts():
        (directory / f"growth-{name}.svg").write_text(draw(chart))


if __name__ == "__main__":
    main()
