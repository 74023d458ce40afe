"""The proxies of the proof: their configuration files and command lines."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from programs import HOST

LIMIT = 100


@dataclass(frozen=True)
class Place:
    """The directory of the files, the tidegate to run, and the ports of the others."""

    directory: Path
    tidegate: Path
    origin: int
    redis: int
    service: int

    def write(self, name, text):
        (self.directory / name).write_text(text)
        return name


@dataclass(frozen=True)
class Kind:
    """A proxy: its name in the tables, the command of one of four, and what holds its counts beside it."""

    name: str
    command: Callable
    store: str = ""
    # The programs that it needs.
    tools: tuple = ()
    # Whether its row is among those of a shared limit.
    is_shared: bool = True


def nginx(place, name, server):
    limits = "limit_req_zone $http_x_client zone=one:1m rate=100r/s;"
    file = f"""daemon off;
worker_processes 1;
pid {name}.pid;
events {{}}
http {{
  access_log off;
  {limits}
  {server}
}}
"""
    place.write(f"{name}.conf", file)
    return ["nginx", "-p", place.directory, "-e", "stderr", "-c", f"{name}.conf"]


def origin(place):
    return nginx(place, "origin", f"server {{ listen {HOST}:{place.origin}; return 200 ok; }}")


def nginx_proxy(place, number, port):
    limit = "limit_req zone=one burst=100 nodelay; limit_req_status 429;"
    location = f"location / {{ {limit} proxy_pass http://{HOST}:{place.origin}; }}"
    return nginx(place, f"proxy-{number}", f"server {{ listen {HOST}:{port}; {location} }}")


def tidegate(on_failure):
    def command(place, number, port):
        file = f"""listen = "{HOST}:{port}"

[store]
url = "redis://{HOST}:{place.redis}"
instances = 4

[upstreams.api]
servers = ["http://{HOST}:{place.origin}"]

[limits.per-client]
key = "header:x-client"
rate = "100/s"
burst = 100
on_store_failure = "{on_failure}"

[[routes]]
path = "/*"
upstream = "api"
limits = ["per-client"]
"""
        return [place.tidegate, "run", "-c", place.write(f"proxy-{number}.toml", file)]

    return command


def service(place):
    """tidegate as the rate-limit service of Envoy."""
    file = f"""[[listeners]]
address = "{HOST}:{place.service}"
serve = "envoy-ratelimit"

[limits.per-client]
key = "descriptor:client"
rate = "100/s"
burst = 100

[[descriptors]]
domain = "proof"
match = ["client"]
limits = ["per-client"]
"""
    return [place.tidegate, "run", "-c", place.write("service.toml", file)]


def traefik(place, number, port):
    limit = {
        "average": LIMIT,
        "burst": LIMIT,
        "sourceCriterion": {"requestHeaderName": "X-Client"},
        "redis": {"endpoints": [f"{HOST}:{place.redis}"]},
    }
    file = {
        "http": {
            "routers": {"all": {"rule": "PathPrefix(`/`)", "service": "api", "middlewares": ["limit"]}},
            "middlewares": {"limit": {"rateLimit": limit}},
            "services": {"api": {"loadBalancer": {"servers": [{"url": f"http://{HOST}:{place.origin}"}]}}},
        }
    }
    # JSON is YAML.
    name = place.write(f"proxy-{number}.yaml", json.dumps(file))
    options = ["--log.level=FATAL", "--global.checkNewVersion=false", "--global.sendAnonymousUsage=false"]
    return ["traefik", f"--providers.file.filename={name}", f"--entryPoints.web.address={HOST}:{port}", *options]


def cluster(name, port, **options):
    address = {"socket_address": {"address": HOST, "port_value": port}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "connect_timeout": "1s", "load_assignment": assignment, **options}


def envoy(place, number, port, limit, clusters=()):
    types = "type.googleapis.com/envoy.extensions.filters"
    actions = [{"request_headers": {"header_name": "x-client", "descriptor_key": "client"}}]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "api", "rate_limits": [{"actions": actions}]}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "proof",
        "http_filters": [
            limit,
            {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    listener = {
        "address": {"socket_address": {"address": HOST, "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    resources = {"listeners": [listener], "clusters": [cluster("api", place.origin), *clusters]}
    name = place.write(f"proxy-{number}.json", json.dumps({"static_resources": resources}))
    return ["envoy", "-c", name, "--concurrency", "1", "--disable-hot-restart", "--log-level", "off"]


def envoy_local(place, number, port):
    """Envoy's own token bucket, which is one for all clients: there is one client here."""
    percent = {"default_value": {"numerator": 100}}
    config = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        # Envoy's shortest interval is 50 ms.
        "token_bucket": {"max_tokens": LIMIT, "tokens_per_fill": LIMIT // 20, "fill_interval": "0.05s"},
        "filter_enabled": percent,
        "filter_enforced": percent,
    }
    return envoy(place, number, port, {"name": "limit", "typed_config": config})


def envoy_service(place, number, port):
    """With the defaults of the filter: a timeout of 20 ms, and requests pass without a decision."""
    config = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "proof",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "service"}},
        },
    }
    http2 = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    clusters = [cluster("service", place.service, typed_extension_protocol_options=http2)]
    return envoy(place, number, port, {"name": "limit", "typed_config": config}, clusters)


KINDS = {
    "tidegate-local": Kind('tidegate, `on_store_failure = "local"`', tidegate("local"), "redis", ("redis-server",)),
    "tidegate-deny": Kind('tidegate, `"deny"`', tidegate("deny"), "redis", ("redis-server",), is_shared=False),
    "tidegate-allow": Kind('tidegate, `"allow"`', tidegate("allow"), "redis", ("redis-server",), is_shared=False),
    "traefik": Kind("Traefik, `rateLimit` with `redis`", traefik, "redis", ("redis-server", "traefik")),
    "envoy-service": Kind("Envoy, `ratelimit` with a service", envoy_service, "service", ("envoy",)),
    "envoy": Kind("Envoy, `local_ratelimit`", envoy_local, tools=("envoy",)),
    "nginx": Kind("nginx, `limit_req`", nginx_proxy),
}


def version(name, program):
    """The version of a program, as it states it."""
    kind = name.split("-")[0]
    commands = {"tidegate": [program, "--version"], "traefik": ["traefik", "version"], "envoy": ["envoy", "--version"]}
    done = subprocess.run(commands.get(kind, ["nginx", "-v"]), capture_output=True, text=True)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
    return found[0] if found else ""
