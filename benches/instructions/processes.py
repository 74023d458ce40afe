"""Builds the binary, writes its configuration, and starts the processes around the measured one."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from scenarios import Client

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """The ports, from a first one on."""

    upstream: int

    @property
    def proxy(self):
        return self.upstream + 1

    @property
    def admin(self):
        return self.upstream + 2

    @property
    def redis(self):
        return self.upstream + 3


def fail(message):
    sys.exit(f"instructions: {message}")


def binary(given, profile):
    """The binary to measure; it is built unless one is given."""
    if given:
        return Path(given)
    subprocess.run(["cargo", "build", "--locked", "--profile", profile], check=True)
    metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    found = json.loads(subprocess.run(metadata, check=True, capture_output=True).stdout)
    return Path(found["target_directory"]) / profile / "tidegate"


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


@contextlib.contextmanager
def running(command, port, log=subprocess.DEVNULL):
    """A process that listens on a port, until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def upstream(tidegate, ports, directory):
    """The server behind the proxy: it responds with 128 bytes."""
    config = directory / "upstream.toml"
    config.write_text(
        f'workers = 1\nlisten = "{HOST}:{ports.upstream}"\n[[routes]]\npath = "/*"\n'
        f'respond = {{ status = 200, body = "{"s" * 128}" }}\n[log]\naccess = "off"\n'
    )
    return running([tidegate, "run", "-c", str(config)], ports.upstream)


def redis(scenario, ports):
    """A Redis without persistence, if the scenario uses one."""
    if not scenario.uses_redis:
        return contextlib.nullcontext()
    options = ["--bind", HOST, "--port", str(ports.redis), "--save", "", "--appendonly", "no"]
    return running(["redis-server", *options], ports.redis)


def proxy_config(scenario, ports, directory):
    """Writes the configuration of the measured proxy, and the files that it names."""
    server = f"{HOST}:{ports.upstream}"
    tables = scenario.tables.replace("{admin}", f"{HOST}:{ports.admin}")
    tables = tables.replace("{redis}", f"{HOST}:{ports.redis}").replace("{upstream}", server)
    listener = f'[[listeners]]\naddress = "{HOST}:{ports.proxy}"\n'
    if scenario.client in (Client.TLS, Client.HTTP2):
        write_certificate(directory)
        listener += 'tls = { certificates = [{ cert = "tls.pem", key = "tls.key" }] }\n'
    (directory / "consumers.toml").write_text('[acme]\ncredentials = ["k1"]\ntier = "pro"\n')
    config = directory / "tidegate.toml"
    config.write_text(
        f'workers = 1\n{listener}{tables}[[routes]]\npath = "/*"\n{scenario.route}'
        f'upstream = "http://{server}"\n[log]\naccess = "{scenario.access}"\n'
    )
    return config


def write_certificate(directory):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "tls.key"]
    subject = ["-subj", "/CN=bench.example", "-addext", "subjectAltName=DNS:bench.example", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *subject, "-out", "tls.pem"]
    subprocess.run(command, cwd=directory, check=True, stderr=subprocess.DEVNULL)
