"""Runs the proxy under callgrind, and counts the instructions of a request."""

import re
import subprocess

from clients import client
from programs import fail, running

WARM_UP = 20


def count(tidegate, config, scenario, load, ports):
    """The instructions of a request: those of a long run less those of a short one, so that connections that a client
    opens in each run do not count. `load` is the number of connections, and of requests for each."""
    (connections, rounds), directory = load, config.parent
    if scenario.is_sequential:
        connections, rounds = 1, connections * rounds
    profile = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out"]
    with (
        (directory / "log").open("w") as log,
        running([*profile, tidegate, "run", "-c", str(config)], ports.proxy, log) as process,
    ):
        source = client(scenario, connections, ports.proxy, process)
        source.send(WARM_UP)
        control(process, "-i", "on")
        few, many = (instructions(process, directory, source, part) for part in (WARM_UP, WARM_UP + rounds))
        source.close()
    return round((many - few) / (connections * rounds))


def control(process, *arguments):
    command = ["callgrind_control", *arguments, str(process.pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def instructions(process, directory, source, rounds):
    """The instructions of the process while requests are sent."""
    control(process, "-z")
    statuses = source.send(rounds)
    if statuses != {source.scenario.status}:
        fail(f"the responses have the status {sorted(statuses)} instead of {source.scenario.status}")
    before = set(directory.glob("out*"))
    control(process, "-d")
    (written,) = set(directory.glob("out*")) - before
    return int(re.search(r"^totals: (\d+)", written.read_text(errors="replace"), re.M)[1])
