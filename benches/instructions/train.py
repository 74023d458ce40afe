#!/usr/bin/env python3
"""Trains a build that counts its own branches: runs each scenario against it, without valgrind.

    benches/instructions/train.py BINARY

`packaging/pgo` uses this. The binary writes its counters when it ends, to the directory that it was built with. The
number of requests is bounded; all traffic stays on the loopback interface.

Settings, as environment variables: CONNECTIONS=16   ROUNDS=600 (requests for each connection)   BASE_PORT=27500
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from clients import client  # noqa: E402
from processes import Ports, proxy_config, redis, upstream  # noqa: E402
from programs import fail, running  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402


def train(tidegate, scenario, load, ports, directory):
    """Sends the requests of a scenario: so many connections, and requests for each."""
    connections, rounds = (1, load[0] * load[1]) if scenario.is_sequential else load
    config = proxy_config(scenario, ports, directory)
    with redis(scenario, ports), running([tidegate, "run", "-c", str(config)], ports.proxy) as process:
        source = client(scenario, connections, ports.proxy, process)
        # The first requests of a limit that denies are allowed.
        source.send(20)
        statuses = source.send(rounds)
        source.close()
    if statuses != {scenario.status}:
        fail(f"the responses have the status {sorted(statuses)} instead of {scenario.status}")


def main():
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    tidegate = str(Path(sys.argv[1]).resolve())
    load = int(os.environ.get("CONNECTIONS", "16")), int(os.environ.get("ROUNDS", "600"))
    ports = Ports(int(os.environ.get("BASE_PORT", "27500")))
    with tempfile.TemporaryDirectory() as temporary, upstream(tidegate, ports, Path(temporary)):
        for name, scenario in SCENARIOS.items():
            print(f"training: {name}", file=sys.stderr)
            directory = Path(temporary) / name
            directory.mkdir()
            train(tidegate, scenario, load, ports, directory)


if __name__ == "__main__":
    main()
