"""nginx with one worker process: as a peer, alone and with Lua and Redis, and as the server behind all proxies."""

from pathlib import Path

from programs import HOST
from scenarios import LARGE_BODY, SMALL_BODY

MODULES = Path("/usr/lib/nginx/modules")
LUA_MODULES = [MODULES / "ndk_http_module.so", MODULES / "ngx_http_lua_module.so"]
LUA_LIBRARY = Path("/usr/share/lua/5.1/nginx/redis.lua")
LUA_PACKAGES = ("libnginx-mod-http-lua", "lua-nginx-redis")

HEADERS = """proxy_set_header Host $host; proxy_set_header Connection "";
    proxy_set_header X-Request-Id $request_id; proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header Forwarded 'for=$remote_addr;host="$http_host";proto=$scheme'; proxy_set_header Via "1.1 nginx";
    add_header X-Request-Id $request_id always;"""

LOG_FORMAT = """log_format lines escape=json '{"time":"$time_iso8601","client":"$remote_addr","method":"$request_method",'
    '"host":"$host","target":"$request_uri","status":$status,"bytes":$body_bytes_sent,"took":$request_time,'
    '"request_id":"$request_id","protocol":"$server_protocol","server":"$upstream_addr",'
    '"upstream_took":"$upstream_response_time"}';"""

# The bucket of a key is a hash with its tokens and the time of its last use.
LUA = """
local redis = require "nginx.redis"
local script = [==[
local time = redis.call("TIME")
local now = time[1] + time[2] / 1e6
local found = redis.call("HMGET", KEYS[1], "tokens", "at")
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens = math.min(burst, (tonumber(found[1]) or burst) + math.max(0, now - (tonumber(found[2]) or now)) * rate)
local is_allowed = tokens >= 1
if is_allowed then tokens = tokens - 1 end
redis.call("HSET", KEYS[1], "tokens", tostring(tokens), "at", tostring(now))
redis.call("PEXPIRE", KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return { is_allowed and 1 or 0, math.floor(tokens), math.ceil((burst - tokens) / rate) }
]==]
local sha
local limit = {}
function limit.check()
  local connection = redis:new()
  connection:set_timeout(5000)
  if not connection:connect("%(host)s", %(port)d) then return ngx.exit(503) end
  local key = "bench:" .. (ngx.var.http_x_api_key or "")
  local answer = sha and connection:evalsha(sha, 1, key, %(rate)d, %(burst)d)
  if not answer then
    sha = connection:script("load", script)
    answer = connection:evalsha(sha, 1, key, %(rate)d, %(burst)d)
  end
  if not answer then return ngx.exit(503) end
  connection:set_keepalive(60000, 128)
  ngx.header["X-RateLimit-Limit"] = %(burst)d
  ngx.header["X-RateLimit-Remaining"] = answer[2]
  ngx.header["X-RateLimit-Reset"] = answer[3]
  if answer[1] == 0 then return ngx.exit(429) end
end
return limit
"""


def command(environment, scenario):
    return with_limits(environment, scenario, HEADERS)


def bare_command(environment, scenario):
    """nginx that adds no header to what it forwards."""
    return with_limits(environment, scenario, 'proxy_set_header Connection "";')


def with_limits(environment, scenario, headers):
    ports, limit, http, location = environment.ports, scenario.limit, "", headers
    if limit:
        http += f"limit_req_zone $http_x_api_key zone=each:16m rate={limit.rate}r/{limit.unit[0]}; limit_req_status 429; "
        http += "limit_req_log_level info;"
        location += f"limit_req zone=each burst={limit.burst} nodelay; add_header X-RateLimit-Limit {limit.burst} always;"
    if scenario.bound:
        http += "limit_conn_zone $server_port zone=all:1m; limit_conn_status 503; limit_conn_log_level info;"
        location += f"limit_conn all {scenario.bound};"
    block = server(environment, scenario, ports, location)
    return start(environment, "nginx", http, block, scenario.is_logged, workers=scenario.workers)


def command_with_lua(environment, scenario):
    limit, ports = scenario.limit, environment.ports
    numbers = {"host": HOST, "port": ports.redis_of(limit), "rate": limit.rate, "burst": limit.burst}
    environment.write("limit.lua", LUA % numbers)
    http = f'lua_package_path "{environment.directory}/?.lua;/usr/share/lua/5.1/?.lua;;"; '
    http += 'init_by_lua_block { limit = require "limit" }'
    http += server(environment, scenario, ports, HEADERS + " access_by_lua_block { limit.check() }")
    modules = "".join(f"load_module {path}; " for path in LUA_MODULES)
    return start(environment, "nginx-lua", http, "", False, modules)


def upstream_command(environment):
    """The server behind the proxies, with two ports and a Unix socket: it responds with 128 bytes, or with a file."""
    bodies = environment.directory / "bodies"
    bodies.mkdir(exist_ok=True)
    for name, length in (("small", SMALL_BODY), ("large", LARGE_BODY)):
        (bodies / name).write_bytes(b"s" * length)
    ports = environment.ports
    listen = f"listen {HOST}:{ports.upstream} backlog=4096; listen {HOST}:{ports.http2_upstream} http2 backlog=4096; "
    listen += f"listen unix:{environment.upstream_socket} backlog=4096;"
    files = f"location /bodies/ {{ root {environment.directory}; sendfile on; open_file_cache max=10; }}"
    respond = f'server {{ {listen} {files} location / {{ return 200 "{"s" * 128}"; }} }}'
    return start(environment, "upstream", "", respond, False)


def server(environment, scenario, ports, location):
    tls, directory = "", environment.directory
    address = f"unix:{environment.upstream_socket}" if scenario.is_unix else f"{HOST}:{ports.upstream_of(scenario)}"
    if scenario.is_tls:
        tls = f"ssl_certificate {directory}/tls.pem; ssl_certificate_key {directory}/tls.key; ssl_protocols TLSv1.2 TLSv1.3;"
    listen = " ssl" * scenario.is_tls + " http2" * (scenario.is_http2 or scenario.is_memory_tls)
    return f"""
  upstream up {{
    server {address}; keepalive 128; keepalive_requests 100000000; keepalive_timeout 600s;
  }}
  server {{
    listen {HOST}:{ports.proxy} backlog=4096{listen}; {tls}
    location / {{
    proxy_pass http://up; proxy_http_version 1.1;
    {location}
    }}
  }}"""


def start(environment, name, http, server, is_logged, modules="", workers=1):
    """The command for a configuration that writes nothing outside the directory."""
    directory = environment.directory / name
    directory.mkdir(exist_ok=True)
    access = f"{LOG_FORMAT} access_log {directory}/access lines buffer=64k flush=1s;" if is_logged else "access_log off;"
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{path}_temp_path {directory}/{path};" for path in paths)
    path = environment.write(
        f"{name}.conf",
        f"""{modules}
daemon off; worker_processes {workers}; pid {directory}/pid; error_log {directory}/error crit; worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
  {access} keepalive_timeout 600s; keepalive_requests 100000000; tcp_nodelay on;
  {temporary}
  {http}
  {server}
}}
""",
    )
    return ["nginx", "-p", str(directory), "-c", path, "-e", f"{directory}/error"]
