#!/usr/bin/env python3
"""Counts the instructions that tidegate spends on a request in user space, with valgrind's callgrind.

    benches/instructions.py            or: make bench-instructions

Unlike times, instruction counts hardly depend on the load of the machine, so two of them can be compared: the figures
are shown beside those of BASELINE, by default benches/baseline.json. After a change that is meant to move them,
OUT=benches/baseline.json records the new ones. The number of requests is bounded; all traffic stays on the loopback
interface. The upstream is a second tidegate with a `respond` route.

Settings, as environment variables:
  SCENARIOS="plain allowed admin consumer denied logged traced connection"   CONNECTIONS=16   ROUNDS=60
  PROFILE=release (or quick: builds faster)   TIDEGATE=path of a binary, instead of a build
  BASELINE=FILE (empty: none)   OUT=FILE   BASE_PORT=27500 (three ports from there on)
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = os.environ
HOST = "127.0.0.1"
BASE_PORT = int(SETTINGS.get("BASE_PORT", "27500"))
BASELINE = SETTINGS.get("BASELINE", "benches/baseline.json")
CONNECTIONS = int(SETTINGS.get("CONNECTIONS", "16"))
ROUNDS = int(SETTINGS.get("ROUNDS", "60"))
WARM_UP = 20
ADMIN = f'[admin]\nlisten = "{HOST}:{BASE_PORT + 2}"\n'
CONSUMERS = '[consumers]\nfile = "consumers.toml"\n'
TRACING = f'[tracing]\nendpoint = "http://{HOST}:{BASE_PORT}"\n'
LIMIT = '[limits.l]\nrate = "{rate}"\nburst = {burst}\nkey = "header:x-api-key"\n'

# Name: description, tables of the configuration, access log, and whether each request opens a connection.
SCENARIOS = {
    "plain": ("proxied, no limit", "", "off", False),
    "allowed": ("proxied, one limit in the process, allowed", LIMIT.format(rate="100000/s", burst=100000), "off", False),
    "admin": ("the same limit, allowed, with the admin interface, which counts keys", LIMIT.format(rate="100000/s", burst=100000) + ADMIN, "off", False),
    "consumer": ("the same limit by consumer, which is identified by its key", CONSUMERS + LIMIT.format(rate="100000/s", burst=100000).replace("header:x-api-key", "consumer"), "off", False),
    "denied": ("the same limit, denied", LIMIT.format(rate="10/hour", burst=10), "off", False),
    "logged": ("plain, with the access log", "", "json", False),
    "traced": ("plain, with one in a hundred requests traced", TRACING, "off", False),
    "connection": ("plain, a new connection for each request", "", "off", True),
}


def fail(message):
    sys.exit(f"instructions: {message}")


def binary():
    """The binary to measure; without TIDEGATE it is built."""
    if "TIDEGATE" in SETTINGS:
        return SETTINGS["TIDEGATE"]
    profile = SETTINGS.get("PROFILE", "release")
    subprocess.run(["cargo", "build", "--locked", "--profile", profile], check=True)
    target = SETTINGS.get("CARGO_TARGET_DIR", "target")
    return str(Path(target) / profile / "tidegate")


def wait_for_port(port, process):
    for _ in range(300):
        if process.poll() is not None:
            fail(f"the process for port {port} has ended with {process.returncode}")
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            time.sleep(0.1)
    fail(f"nothing listens on port {port}")


def connect():
    return socket.create_connection((HOST, BASE_PORT + 1))


def read_response(stream):
    """Reads a response with a Content-Length; its status."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65536)
        if not piece:
            fail(f"a connection ended within a response: {data!r}")
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?im)^content-length: (\d+)", head)[1])
    while len(body) < length:
        body += stream.recv(65536)
    return int(head.split(b" ")[1])


def exchange(request, streams, is_fresh):
    """One request for each connection; the statuses of the responses."""
    used = [connect() for _ in streams] if is_fresh else streams
    for stream in used:
        stream.sendall(request)
    statuses = {read_response(stream) for stream in used}
    if is_fresh:
        for stream in used:
            stream.close()
    return statuses


def total(directory):
    """The instructions of the largest profile in a directory."""
    counts = [re.search(r"^totals: (\d+)", path.read_text(errors="replace"), re.M) for path in directory.glob("out*")]
    return max((int(count[1]) for count in counts if count), default=0)


def control(process, *arguments):
    subprocess.run(["callgrind_control", *arguments, str(process.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(tidegate, name, directory):
    """The instructions of one request."""
    _, tables, access, is_fresh = SCENARIOS[name]
    limits = 'limits = ["l"]\n' if "[limits.l]" in tables else ""
    config = directory / "tidegate.toml"
    config.write_text(
        f'workers = 1\nlisten = "{HOST}:{BASE_PORT + 1}"\n{tables}'
        f'[[routes]]\npath = "/*"\n{limits}upstream = "http://{HOST}:{BASE_PORT}"\n[log]\naccess = "{access}"\n'
    )
    (directory / "consumers.toml").write_text('[acme]\ncredentials = ["k1"]\ntier = "pro"\n')
    profile = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out"]
    log = (directory / "log").open("w")
    command = [*profile, tidegate, "run", "-c", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_for_port(BASE_PORT + 1, process)
        close = b"Connection: close\r\n" if is_fresh else b""
        request = b"GET /s HTTP/1.1\r\nHost: bench.example\r\nX-Api-Key: k1\r\n" + close + b"\r\n"
        streams = [None if is_fresh else connect() for _ in range(CONNECTIONS)]
        for _ in range(WARM_UP):
            exchange(request, streams, is_fresh)
        control(process, "-i", "on")
        statuses = set().union(*(exchange(request, streams, is_fresh) for _ in range(ROUNDS)))
        control(process, "-i", "off")
        control(process, "-d")
    finally:
        process.terminate()
        process.wait(30)
    if statuses != {429 if name == "denied" else 200}:
        fail(f"{name}: the responses are {sorted(statuses)}")
    return round(total(directory) / (CONNECTIONS * ROUNDS))


def main():
    for tool in ["valgrind", "callgrind_control"]:
        if not shutil.which(tool):
            fail("please install valgrind (on Debian: apt-get install valgrind)")
    os.chdir(Path(__file__).resolve().parent.parent)
    names = SETTINGS.get("SCENARIOS", " ".join(SCENARIOS)).split()
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        fail(f"unknown scenario {unknown[0]}; there are {', '.join(SCENARIOS)}")
    tidegate = binary()
    baseline = json.loads(Path(BASELINE).read_text()) if BASELINE else {}
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        upstream_config = Path(temporary) / "upstream.toml"
        upstream_config.write_text(
            f'workers = 1\nlisten = "{HOST}:{BASE_PORT}"\n[[routes]]\npath = "/*"\n'
            f'respond = {{ status = 200, body = "{"s" * 128}" }}\n[log]\naccess = "off"\n'
        )
        command = [tidegate, "run", "-c", str(upstream_config)]
        upstream = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_port(BASE_PORT, upstream)
            print(f"{'scenario':<12} {'instructions':>12} {'baseline':>10} {'change':>8}")
            for name in names:
                directory = Path(temporary) / name
                directory.mkdir()
                found[name] = measure(tidegate, name, directory)
                before = baseline.get(name)
                change = f"{found[name] / before - 1:+.1%}" if before else "-"
                print(f"{name:<12} {found[name]:>12} {before or '-':>10} {change:>8}   {SCENARIOS[name][0]}", flush=True)
        finally:
            upstream.terminate()
            upstream.wait(30)
    if "OUT" in SETTINGS:
        Path(SETTINGS["OUT"]).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
