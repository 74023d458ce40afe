"""The files of Envoy and of tidegate, and the call of the service."""

import json

from programs import HOST

DOMAIN = "bench"
KEY = "key"
# The values of the header X-Api-Key, each with a bucket that no load of this measurement empties.
KEYS = 10_000
LIMIT = f"""[limits.each]
rate = "100000/s"
burst = 200000
key = "descriptor:{KEY}"
[[descriptors]]
domain = "{DOMAIN}"
match = ["{KEY}"]
limits = ["each"]
"""
SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FILTERS = "type.googleapis.com/envoy.extensions.filters.http"


def service(port, redis_port):
    """tidegate, with one worker; it counts in the process without a Redis."""
    store = f'[store]\nurl = "redis://{HOST}:{redis_port}"\n' if redis_port else ""
    return f"""workers = 1
[[listeners]]
address = "{HOST}:{port}"
serve = "envoy-ratelimit"
[answers]
rate_headers = "none"
[log]
access = "off"
level = "error"
{store}{LIMIT}"""


def field(number, content):
    """A field of a protobuf message: a text or another message, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def call(value):
    """A request of the service as the body of a gRPC call: one descriptor with one entry."""
    entry = field(1, KEY.encode()) + field(2, value.encode())
    message = field(1, DOMAIN.encode()) + field(2, field(1, entry))
    return b"\0" + len(message).to_bytes(4, "big") + message


def local_filter():
    """Envoy's own limit: one bucket for all requests, in the process."""
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    return {
        "@type": f"{FILTERS}.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "local",
        "token_bucket": {"max_tokens": 1_000_000, "tokens_per_fill": 1_000_000, "fill_interval": "1s"},
        "filter_enabled": always,
        "filter_enforced": always,
    }


def global_filter():
    """The filter that calls the service for each request. Without a decision it responds with 500."""
    return {
        "@type": f"{FILTERS}.ratelimit.v3.RateLimit",
        "domain": DOMAIN,
        "timeout": "5s",
        "failure_mode_deny": True,
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "tidegate"}},
        },
    }


def named(name, settings):
    return {"name": f"envoy.filters.{name}", "typed_config": settings}


def listener(port, route, filters):
    router = named("http.router", {"@type": f"{FILTERS}.router.v3.Router"})
    manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    settings = {
        "@type": manager,
        "stat_prefix": f"at_{port}",
        "http_filters": [*filters, router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    return {
        "address": {"socket_address": {"address": HOST, "port_value": port}},
        "filter_chains": [{"filters": [named("network.http_connection_manager", settings)]}],
    }


def cluster(name, port, **options):
    address = {"socket_address": {"address": HOST, "port_value": port}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "connect_timeout": "5s", "load_assignment": assignment, **options}


def envoy(ports, kind):
    """Envoy with no filter, its own or that of the service. Its second listener is the server behind the first one."""
    filters = {
        "none": [],
        "local": [named("http.local_ratelimit", local_filter())],
        "service": [named("http.ratelimit", global_filter())],
    }[kind]
    actions = [{"request_headers": {"header_name": "x-api-key", "descriptor_key": KEY}}]
    limited = {"match": {"prefix": "/"}, "route": {"cluster": "server", "rate_limits": [{"actions": actions}]}}
    answer = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "ok"}}}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    http2 = {
        "@type": f"type.googleapis.com/{options}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    listeners = [listener(ports.envoy, limited, filters), listener(ports.server, answer, [])]
    clusters = [
        cluster("server", ports.server),
        cluster("tidegate", ports.service, typed_extension_protocol_options={options: http2}),
    ]
    return json.dumps({"static_resources": {"listeners": listeners, "clusters": clusters}})
