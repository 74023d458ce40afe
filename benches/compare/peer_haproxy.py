"""HAProxy, with one thread."""

from programs import HOST

HEADERS = """  unique-id-format %{+X}o%[uuid]
  http-request set-header X-Request-Id %[unique-id]
  http-request set-header X-Forwarded-For %[src]
  http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  http-request set-header Forwarded for=%[src];host=\\"%[req.hdr(host)]\\";proto=%[ssl_fc,iif(https,http)]
  http-request set-header Via 1.1\\ haproxy
  http-after-response set-header X-Request-Id %[unique-id]
"""

LOG_FORMAT = (
    '{"time":"%T","client":"%ci","method":"%HM","host":"%[var(txn.host)]","target":"%HP","status":%ST,"bytes":%B,'
    '"took":%Ta,"request_id":"%ID","protocol":"%HV","server":"%s","upstream_took":%Tr}'
)


def limit_rules(limit):
    return f"""  stick-table type string len 64 size 200k expire 600s store http_req_rate(1s)
  http-request track-sc0 req.hdr(x-api-key)
  http-request set-var(txn.used) sc_http_req_rate(0)
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit.rate} }}
  http-after-response set-header X-RateLimit-Limit {limit.rate}
  http-after-response set-header X-RateLimit-Remaining %[int({limit.rate}),sub(txn.used)]
  http-after-response set-header X-RateLimit-Reset 1
"""


def command(environment, scenario):
    ports, rules = environment.ports, HEADERS
    if scenario.limit:
        rules += limit_rules(scenario.limit)
    if scenario.is_logged:
        rules += "  log stdout format raw local0\n  http-request set-var(txn.host) req.hdr(host)\n"
        rules += f"  log-format '{LOG_FORMAT}'\n"
    if scenario.bound:
        rules += "  http-request deny deny_status 503 if { queue(back) ge 16 }\n"
    tls = f" ssl crt {environment.directory}/both.pem alpn h2,http/1.1" if scenario.is_tls else ""
    bound = " maxconn 48" if scenario.bound else ""
    bound += " proto h2" if scenario.is_upstream_http2 else ""
    address = f"unix@{environment.upstream_socket}" if scenario.is_unix else f"{HOST}:{ports.upstream_of(scenario)}"
    path = environment.write(
        "haproxy.cfg",
        f"""global
  nbthread {scenario.workers}
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  timeout queue 60s
  timeout http-keep-alive 600s
  http-reuse always
frontend front
  bind {HOST}:{ports.proxy} backlog 4096{tls}
{rules}  default_backend back
backend back
  server one {address}{bound}
""",
    )
    return ["haproxy", "-db", "-f", path]
