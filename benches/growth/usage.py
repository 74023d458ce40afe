"""Memory of a process that holds many keys or connections, and CPU time of one that forwards large bodies."""

import contextlib
import os
import subprocess

from load import used_connection
from machine import cpu_seconds, memory_bytes, raise_open_files
from programs import mortal, stop, wait_for_port
from sizes import BODY_LABELS, Setup

KEYS = (1, 1000, 10_000, 100_000, 1_000_000)
CONNECTIONS = (1, 1000, 2000, 5000, 10_000)
MIB = 1024 * 1024
# Each key is remembered for an hour after its last request, and none is denied.
LIMIT = '[limits.each]\nrate = "1/hour"\nburst = 2000000\nkey = "header:x-api-key"\n'


class Usage:
    """Starts processes with one worker: the measured one on the core of the proxy, the server behind it on the others."""

    def __init__(self, tidegate, directory, ports, cores, generator, seconds):
        self.tidegate, self.directory, self.ports, self.cores = tidegate, directory, ports, cores
        self.generator, self.seconds = generator, seconds

    @contextlib.contextmanager
    def process(self, name, config, port, cores):
        path, out = self.directory / f"{name}.toml", self.directory / f"{name}.out"
        path.write_text(config)
        command = [str(self.tidegate), "run", "-c", str(path)]
        pin = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
        with out.open("w") as log:
            process = subprocess.Popen(mortal(command), stdout=log, stderr=log, preexec_fn=pin)
            try:
                wait_for_port(port, process, out)
                yield process
            finally:
                stop(process)

    @contextlib.contextmanager
    def proxy(self, setup):
        ports = self.ports
        with (
            self.process("upstream", setup.upstream_config(ports), ports.upstream, self.cores.others),
            self.process("proxy", setup.config(ports), ports.proxy, self.cores.proxy) as proxy,
        ):
            yield proxy

    def cpu(self, proxy, **load):
        """CPU time of a request under full load, in microseconds."""
        before = cpu_seconds(proxy.pid)
        result = self.generator.http1(self.seconds, **load)
        return (cpu_seconds(proxy.pid) - before) * 1e6 / result.responses

    def keys(self):
        """Points of memory in MiB, by the number of known keys."""
        points = []
        with self.proxy(Setup(tables=LIMIT, route='limits = ["each"]\n')) as proxy:
            for count in KEYS:
                self.generator.http1(600, keys=count, most=max(count, 1000) + 64)
                points.append((count, memory_bytes(proxy.pid) / MIB))
        return points

    def connections(self):
        """The same by the number of idle connections."""
        most, (points, streams) = raise_open_files(), ([], [])
        with self.proxy(Setup()) as proxy:
            self.generator.http1(0.5)
            for count in CONNECTIONS:
                if count + 100 > most:
                    break
                while len(streams) < count:
                    streams.append(used_connection(self.ports.proxy))
                points.append((count, memory_bytes(proxy.pid) / MIB))
            for stream in streams:
                stream.close()
        return points

    def bodies(self):
        """CPU time in microseconds by the bytes of the response body."""
        points = []
        for size in BODY_LABELS:
            with self.proxy(Setup(body_bytes=size)) as proxy:
                self.generator.http1(0.3)
                points.append((size, self.cpu(proxy, connections=16)))
        return points
