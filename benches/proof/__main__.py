#!/usr/bin/env python3
"""Shows what proxies do when Redis dies, freezes and returns, and when four of them share a limit.

    make proof

Four proxies of a kind limit the requests of a client, which has its own header value, to 100 a second with a burst of 100. Their
requests come at a fixed rate, whether or not earlier ones have a response. The client asks all four in turn, or one of them alone.
In the outages 400 requests a second go to all four in turn: Redis is killed (SIGKILL, and started again without its data) or stopped
(SIGSTOP, then SIGCONT) for four seconds. Instead of Redis, the rate-limit service of Envoy is killed and stopped: here this is
tidegate, since the reference service has no package.

Kong is not measured: it has no package in the registries of Debian, Python or npm.

Settings, as environment variables:
  SECONDS_EACH=4   PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build
  BASE_PORT=27600 (seven ports)   KINDS=tidegate-local,traefik (all by default)   OUT=file for the figures, as JSON
  TABLES=such a file, whose tables are printed without a measurement
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

import proxies  # noqa: E402
from machine import description, load_average  # noqa: E402
from programs import HOST, binary, enter_repository, fail, mortal, require, stop, wait_for_port, write_lines  # noqa: E402

PROXIES = 4
LIMIT = 100
LOAD = 400
# A request without a response after this is counted as failed.
PATIENCE = 10


async def request(port, at, found):
    """Sends one request and records when it was planned, its status (0 without a response) and how long it took."""
    begun, status = time.monotonic(), 0
    with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError, IndexError):
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: proof.example\r\nX-Client: one\r\nConnection: close\r\n\r\n")
            status = int((await reader.readline()).split()[1])
            writer.close()
    found.append((at, status, time.monotonic() - begun))


async def load(ports, rate, seconds, events=()):
    """Requests at `rate` a second to these ports in turn. Each event is a time and what is called then."""
    found, tasks, begun = [], [], time.monotonic()
    events = list(events)
    for index in range(int(rate * seconds)):
        at = index / rate
        await asyncio.sleep(max(0, begun + at - time.monotonic()))
        while events and events[0][0] <= at:
            tasks.append(asyncio.create_task(asyncio.to_thread(events.pop(0)[1])))
        tasks.append(asyncio.create_task(request(ports[index % len(ports)], at, found)))
    await asyncio.gather(*tasks)
    return sorted(found)


class Store:
    """Redis without persistence, which can be killed, stopped and brought back."""

    def __init__(self, port):
        self.port = port
        self.start()

    def start(self):
        command = ["redis-server", "--port", self.port, "--bind", HOST, "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(mortal(command), stdout=subprocess.DEVNULL)
        wait_for_port(self.port, self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


def phase(found, begin, end):
    """What happened to the requests of a part of the load."""
    part = [(status, took) for at, status, took in found if begin <= at < end]
    times = sorted(took for _, took in part)
    count = lambda accepts: sum(accepts(status) for status, _ in part)  # noqa: E731
    return {
        "admitted": count(lambda status: status == 200) / (end - begin),
        "denied": count(lambda status: status == 429) / (end - begin),
        "errors": count(lambda status: status not in (200, 429)) / (end - begin),
        "statuses": sorted({status for status, _ in part}),
        "median": median(times) * 1e3,
        "longest": times[-1] * 1e3,
    }


class Proof:
    """The measurements of one kind of proxy."""

    def __init__(self, kind, ports, seconds):
        self.kind, self.seconds = kind, seconds
        self.origin, self.redis, self.service, *self.proxies = range(ports, ports + 3 + PROXIES)

    @contextlib.contextmanager
    def fleet(self, program):
        """Four proxies, and what they need; the process whose failure is measured, or none."""
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            place = proxies.Place(Path(directory), program, self.origin, self.redis, self.service)

            def start(command, port):
                log = (Path(directory) / f"{port}.log").open("w")
                process = subprocess.Popen(mortal(command), cwd=directory, stdout=log, stderr=log)
                stack.callback(stop, process)
                wait_for_port(port, process, log.name)
                return process

            start(proxies.origin(place), self.origin)
            failing = None
            if self.kind.store == "redis":
                failing = Store(self.redis)
                stack.callback(lambda: failing.kill())
            if self.kind.store == "service":
                failing = Service(start, proxies.service(place), self.service)
            for number, port in enumerate(self.proxies):
                start(self.kind.command(place, number, port), port)
            asyncio.run(self.until_ready())
            yield failing

    async def until_ready(self):
        """Waits until each proxy admits a request, and until the bucket is full again."""
        for port in self.proxies:
            for _ in range(100):
                found = []
                await request(port, 0, found)
                if found[0][1] == 200:
                    break
                await asyncio.sleep(0.1)
            else:
                fail(f"{self.kind.name} does not respond: status {found[0][1]}")
        await asyncio.sleep(2)

    def shared(self, program, ports):
        """Requests admitted of those that one limit allows, for requests to all proxies and to one alone."""
        with self.fleet(program):
            found = asyncio.run(load(ports, LOAD, self.seconds))
        allowed = LIMIT + LIMIT * self.seconds
        return sum(status == 200 for _, status, _ in found) / allowed

    def outage(self, program, way):
        begin, end, last = self.seconds, 2 * self.seconds, 3.5 * self.seconds
        with self.fleet(program) as failing:
            ends = {"dies": (failing.kill, failing.start), "freezes": (failing.freeze, failing.thaw)}[way]
            events = [(begin, ends[0]), (end, ends[1])]
            found = asyncio.run(load(self.proxies, LOAD, last, events))
        # The burst is used up in the first second.
        return {
            "before": phase(found, begin / 2, begin),
            "outage": phase(found, begin, end),
            "second": phase(found, end, end + 1),
            "after": phase(found, end + 1, last),
        }


class Service(Store):
    """Envoy's rate-limit service in the place of Redis."""

    def __init__(self, start, command, port):
        self.run, self.command, self.port = start, command, port
        self.start()

    def start(self):
        self.process = self.run(self.command, self.port)


def milliseconds(value):
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def admitted(figures, part):
    return f"{figures[part]['admitted']:.0f}/s"


def table(head, rows):
    print("\n| " + " | ".join(head) + " |")
    print("| " + " | ".join("---" for _ in head) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def report(figures):
    rows = [[name, *(f"{share:.2f}" for share in shares)] for name, shares in figures["shared"].items()]
    table(["", "requests to all four", "requests to one of them"], rows)
    head = ["", "before", "in the outage", "other responses", "median and longest", "the second after", "afterwards"]
    for way in ("dies", "freezes"):
        rows = []
        for name, one in figures[way].items():
            outage = one["outage"]
            others = ", ".join(str(status or "none") for status in outage["statuses"] if status not in (200, 429))
            failed = f"{outage['errors']:.0f}/s with {others}" if others else ""
            took = f"{milliseconds(outage['median'])}, {milliseconds(outage['longest'])}"
            begin, end = ([admitted(one, part) for part in parts] for parts in (("before", "outage"), ("second", "after")))
            rows.append([name, *begin, failed, took, *end])
        table(head, rows)


def main():
    enter_repository()
    if given := os.environ.get("TABLES"):
        report(json.loads(Path(given).read_text()))
        return
    chosen = [name for name in os.environ.get("KINDS", "").split(",") if name] or list(proxies.KINDS)
    # The server behind the proxies is an nginx.
    require(["nginx", *sorted({tool for name in chosen for tool in proxies.KINDS[name].tools})])
    program = binary(os.environ.get("TIDEGATE"), os.environ.get("PROFILE", "release"))
    seconds, ports = int(os.environ.get("SECONDS_EACH", "4")), int(os.environ.get("BASE_PORT", "27600"))
    print(f"{description()}, load {load_average():.1f}")
    figures = {"shared": {}, "dies": {}, "freezes": {}}
    for name, kind in proxies.KINDS.items():
        if name not in chosen:
            continue
        print(f"{kind.name} {proxies.version(name, program)}", file=sys.stderr)
        proof = Proof(kind, ports, seconds)
        if kind.is_shared:
            shares = [proof.shared(program, proof.proxies), proof.shared(program, proof.proxies[:1])]
            figures["shared"][kind.name] = shares
        for way in ("dies", "freezes") if kind.store else ():
            figures[way][kind.name] = proof.outage(program, way)
    report(figures)
    if out := os.environ.get("OUT"):
        write_lines(out, figures)


main()
