"""tidegate, and a relay that parses nothing."""

from programs import HOST, compiled


def command(environment, scenario):
    ports, limit, head, route = environment.ports, scenario.limit, "", ""
    if scenario.is_tls:
        head += f'tls = {{ certificates = [{{ cert = "{environment.directory}/tls.pem", '
        head += f'key = "{environment.directory}/tls.key" }}] }}\n'
    if scenario.uses_redis:
        head += f'[store]\nurl = "redis://{HOST}:{ports.redis_of(limit)}"\n'
    if limit:
        head += f'[limits.each]\nrate = "{limit.rate}/{limit.unit}"\nburst = {limit.burst}\nkey = "header:x-api-key"\n'
        route = 'limits = ["each"]\n'
    server = f"unix:{environment.upstream_socket}" if scenario.is_unix else f"http://{HOST}:{ports.upstream_of(scenario)}"
    bound = "max_connections = 48\nmax_pending = 16\n" if scenario.bound else ""
    bound += 'protocol = "h2"\n' if scenario.is_upstream_http2 else ""
    path = environment.write(
        "tidegate.toml",
        f"""workers = {scenario.workers}
[[listeners]]
address = "{HOST}:{ports.proxy}"
{head}
[[routes]]
path = "/*"
{route}upstream = "up"
[upstreams.up]
servers = ["{server}"]
{bound}[log]
access = "{"json" if scenario.is_logged else "off"}"
level = "error"
""",
    )
    return [str(environment.tidegate), "run", "-c", path]


def relay_command(environment, scenario):
    program, ports = compiled("delay", environment.directory), environment.ports
    return [str(program), str(ports.proxy), str(ports.upstream_of(scenario)), "0"]
