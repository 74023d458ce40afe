"""Writes the configuration of the measured process, and starts the processes around it."""

import contextlib
from dataclasses import dataclass

from programs import HOST, running, write_certificate
from scenarios import Client


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

    @property
    def other_upstream(self):
        return self.upstream + 4


def upstream(tidegate, ports, directory):
    """The server behind the proxy, with two ports: it responds with 128 bytes."""
    config = directory / "upstream.toml"
    listeners = "".join(f'[[listeners]]\naddress = "{HOST}:{port}"\n' for port in (ports.upstream, ports.other_upstream))
    config.write_text(
        f'workers = 1\n{listeners}[[routes]]\npath = "/*"\n'
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
    addresses = {name: f"{HOST}:{getattr(ports, name)}" for name in ("admin", "redis", "upstream", "other_upstream")}
    tables, server = (text.format_map(addresses) for text in (scenario.tables, scenario.upstream))
    listener = f'[[listeners]]\naddress = "{HOST}:{ports.proxy}"\n'
    if scenario.client in (Client.TLS, Client.HTTP2):
        write_certificate(directory)
        listener += 'tls = { certificates = [{ cert = "tls.pem", key = "tls.key" }] }\n'
    (directory / "consumers.toml").write_text('[acme]\ncredentials = ["k1"]\ntier = "pro"\n')
    config = directory / "tidegate.toml"
    config.write_text(
        f'workers = 1\n{listener}{tables}[[routes]]\npath = "/*"\n{scenario.route}'
        f'upstream = "{server}"\n[log]\naccess = "{scenario.access}"\n'
    )
    return config
