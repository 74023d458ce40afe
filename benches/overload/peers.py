"""The proxies that are compared: their configuration files and command lines. Each has one worker."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from programs import HOST

# What each server works at, which HAProxy and nginx must be told.
SLOTS = 4
SERVERS = 4


@dataclass(frozen=True)
class Place:
    """The directory of the files, the tidegate to run, and the ports, from a first one on."""

    directory: Path
    tidegate: Path
    proxy: int

    @property
    def servers(self):
        return [self.proxy + 1 + number for number in range(SERVERS)]

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Peer:
    """A proxy: its name in the table, its command, how to learn whether it is there, and what it can do."""

    label: str
    command: Callable
    program: str
    version: tuple = ()
    has_priority: bool = False

    @property
    def is_installed(self):
        return shutil.which(self.program) is not None


def tidegate(overload):
    """`overload` are lines of the upstream."""

    def command(place):
        servers = json.dumps([f"http://{HOST}:{port}" for port in place.servers])
        priority = 'priority = "critical"' if overload else ""
        path = place.write(
            "tidegate.toml",
            f"""workers = 1
[[listeners]]
address = "{HOST}:{place.proxy}"
[[routes]]
path = "/critical"
upstream = "api"
{priority}
[[routes]]
path = "/*"
upstream = "api"
[upstreams.api]
servers = {servers}
balance = "least_requests"
{overload}
[log]
access = "off"
level = "error"
""",
        )
        return [str(place.tidegate), "run", "-c", path]

    return command


def haproxy(place):
    """As many requests at each server as it has slots; others wait in one queue, critical ones first."""
    servers = "\n".join(f"  server s{port} {HOST}:{port} maxconn {SLOTS}" for port in place.servers)
    path = place.write(
        "haproxy.cfg",
        f"""global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  timeout queue 50ms
  timeout http-keep-alive 600s
  http-reuse always
frontend front
  bind {HOST}:{place.proxy} backlog 4096
  http-request set-priority-class int(-10) if {{ path /critical }}
  default_backend api
backend api
  balance leastconn
{servers}
""",
    )
    return ["haproxy", "-db", "-f", path]


def nginx(place):
    """Twice as many requests at a time as there are slots, without a queue; critical ones are not bounded."""
    servers = " ".join(f"server {HOST}:{port} max_fails=0;" for port in place.servers)
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{path}_temp_path {place.directory}/nginx-{path};" for path in paths)
    passed = 'proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection "";'
    path = place.write(
        "nginx.conf",
        f"""daemon off; worker_processes 1; pid {place.directory}/nginx.pid; worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
  access_log off; keepalive_timeout 600s; keepalive_requests 100000000; tcp_nodelay on;
  {temporary}
  limit_conn_zone $server_port zone=all:1m; limit_conn_status 503; limit_conn_log_level info;
  upstream api {{
    least_conn; {servers} keepalive 128; keepalive_requests 100000000; keepalive_timeout 600s;
  }}
  server {{
    listen {HOST}:{place.proxy} backlog=4096;
    location /critical {{ {passed} }}
    location / {{ {passed} limit_conn all {2 * SERVERS * SLOTS}; }}
  }}
}}
""",
    )
    return ["nginx", "-p", str(place.directory), "-c", path, "-e", f"{place.directory}/nginx.error"]


def envoy(place):
    """The adaptive limit, with the values of its documentation."""
    types = "type.googleapis.com/envoy.extensions.filters"

    def at(port):
        return {"socket_address": {"address": HOST, "port_value": port}}

    adaptive = {
        "@type": f"{types}.http.adaptive_concurrency.v3.AdaptiveConcurrency",
        "gradient_controller_config": {
            "sample_aggregate_percentile": {"value": 90},
            "concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
            "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": "60s", "request_count": 50},
        },
    }
    filters = [
        {"name": "envoy.filters.http.adaptive_concurrency", "typed_config": adaptive},
        {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
    ]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "api", "timeout": "60s"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoints = [{"endpoint": {"address": at(port)}} for port in place.servers]
    bounds = {"thresholds": [{"max_connections": 9000, "max_pending_requests": 9000, "max_requests": 9000}]}
    cluster = {
        "name": "api",
        "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": bounds,
        "load_assignment": {"cluster_name": "api", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    # The kernel's queue of connections has 128 places by default, which is too few for a step.
    listener = {"name": "front", "tcp_backlog_size": 4096, "address": at(place.proxy), "filter_chains": [chain]}
    file = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    path = place.write("envoy.json", json.dumps(file))
    return ["envoy", "-c", path, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]


PEERS = {
    "tidegate": Peer("tidegate", tidegate("overload = true"), "sh", has_priority=True),
    "haproxy": Peer("HAProxy", haproxy, "haproxy", ("haproxy", "-v"), has_priority=True),
    "envoy": Peer("Envoy", envoy, "envoy", ("envoy", "--version")),
    "nginx": Peer("nginx", nginx, "nginx", ("nginx", "-v"), has_priority=True),
    "bare": Peer("no protection", tidegate(""), "sh"),
}


def version(command):
    """The number of a version."""
    done = subprocess.run(command, capture_output=True, text=True)
    words = (done.stdout + done.stderr).replace("nginx/", "nginx ").split()
    found = next(word for word in words if "." in word and any(letter.isdigit() for letter in word))
    return re.sub(r"^.*/(\d[\d.]*)/.*$", r"\1", found)
