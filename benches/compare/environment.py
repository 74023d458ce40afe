"""Where the proxies of a measurement run, and what is beside them."""

from dataclasses import dataclass
from pathlib import Path

from scenarios import Store


@dataclass(frozen=True)
class Ports:
    """The ports, from a first one on."""

    upstream: int

    @property
    def proxy(self):
        return self.upstream + 1

    @property
    def redis(self):
        return self.upstream + 2

    @property
    def far_redis(self):
        return self.upstream + 3

    @property
    def slow_upstream(self):
        return self.upstream + 4

    @property
    def http2_upstream(self):
        return self.upstream + 5

    def upstream_of(self, scenario):
        if scenario.is_upstream_http2:
            return self.http2_upstream
        return self.slow_upstream if scenario.bound else self.upstream

    def redis_of(self, limit):
        return self.far_redis if limit.store == Store.FAR else self.redis


@dataclass(frozen=True)
class Environment:
    """A directory for files, the measured binary and the ports."""

    directory: Path
    tidegate: Path
    ports: Ports

    @property
    def upstream_socket(self):
        """The Unix socket of the server."""
        return self.directory / "upstream.sock"

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return str(path)
