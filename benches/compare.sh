#!/usr/bin/env bash
# Measures tidegate side by side with nginx and HAProxy on this machine, over the loopback interface only.
#
#   benches/compare.sh            or: make bench-compare
#
# Scenarios: plain    no limit
#            allowed  a limit by a header, 10,000 keys, every request within it
#            denied   the same, one key far above its limit, nearly every request denied
#
# In each round each proxy is started, in rotating order, checked with one request, warmed up, and put under load by
# wrk. The main figure is the CPU time that the proxy's processes spend on a request, user and system, from /proc:
# wall-clock figures depend more on the cores of the machine than on the proxy. Each round's figure is divided by
# nginx's of the same round; medians over the rounds are shown. The proxies do not do exactly the same work: tidegate
# adds rate-limit headers to every limited response, and forwarding headers to every request.
#
# Settings, as environment variables:
#   ROUNDS=5  SECONDS_EACH=3  SCENARIOS="plain allowed denied"  PEERS="tidegate nginx haproxy"
#   CONNECTIONS=64  BASE_PORT=27400 (three ports from there on)  PROFILE=release (or quick: builds faster)
#   TIDEGATE=path of a binary, instead of a build
set -euo pipefail

ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-3}
SCENARIOS=${SCENARIOS:-plain allowed denied}
PEERS=${PEERS:-tidegate nginx haproxy}
CONNECTIONS=${CONNECTIONS:-64}
BASE_PORT=${BASE_PORT:-27400}
PROFILE=${PROFILE:-release}
TIDEGATE=${TIDEGATE:-}

BASE_PEER=nginx
KEYS=10000
BODY_BYTES=128
UPSTREAM_PORT=$BASE_PORT
PROXY_PORT=$((BASE_PORT + 1))
HOST=127.0.0.1

say() { printf '%s\n' "$*" >&2; }

die() {
  say "compare: $*"
  exit 1
}

# Debian installs servers in directories that are not in the PATH of most users.
PATH="$PATH:/usr/sbin:/sbin"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# ---------------------------------------------------------------- prerequisites

missing=()
for tool in nginx haproxy wrk curl taskset; do
  command -v "$tool" >/dev/null 2>&1 || missing+=("${tool/taskset/util-linux}")
done
if [ "${#missing[@]}" -gt 0 ]; then
  die "please install ${missing[*]} (on Debian: apt-get install ${missing[*]}); a service that a package starts can be stopped"
fi
for peer in $PEERS; do
  case "$peer" in tidegate | nginx | haproxy) ;; *) die "unknown peer $peer" ;; esac
done
for scenario in $SCENARIOS; do
  case "$scenario" in plain | allowed | denied) ;; *) die "unknown scenario $scenario" ;; esac
done
[[ " $PEERS " == *" $BASE_PEER "* ]] || die "PEERS must have $BASE_PEER, which the others are compared with"

if [ -z "$TIDEGATE" ]; then
  say "Building tidegate (profile $PROFILE) ..."
  cargo build --locked --quiet --profile "$PROFILE"
  TIDEGATE="${CARGO_TARGET_DIR:-target}/$PROFILE/tidegate"
fi
[ -x "$TIDEGATE" ] || die "there is no program $TIDEGATE"

# With two or more cores the proxy has the last one for itself; load generator and upstream share the others.
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
  awk -F- '{ for (core = $1; core <= ($2 == "" ? $1 : $2); core++) print core }')
proxy_core=${cores[-1]}
other_cores=$proxy_core
if [ "${#cores[@]}" -gt 1 ]; then
  other_cores=$(IFS=,; echo "${cores[*]:0:${#cores[@]}-1}")
else
  say "Only one core: load, proxy and upstream share it."
fi

work=$(mktemp -d)
started=()

stop() {
  local pid=$1 tries
  kill -TERM "$pid" 2>/dev/null || return 0
  for tries in {1..40}; do
    kill -0 "$pid" 2>/dev/null || break
    [ "$tries" -lt 40 ] || kill -KILL "$pid" 2>/dev/null || true
    sleep 0.05
  done
  wait "$pid" 2>/dev/null || true
}

clean_up() {
  local pid
  for pid in "${started[@]}"; do stop "$pid"; done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

is_open() { (exec 3<>"/dev/tcp/$HOST/$1") 2>/dev/null; }

for port in "$UPSTREAM_PORT" "$PROXY_PORT"; do
  if is_open "$port"; then die "port $port is in use; set BASE_PORT to another"; fi
done

wait_for() {
  local port=$1 pid=$2
  for _ in {1..100}; do
    if is_open "$port"; then return 0; fi
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

# ---------------------------------------------------------------- configurations

# The start of an nginx configuration that writes nothing outside the work directory.
nginx_top() {
  mkdir -p "$work/$1"
  cat <<CONF
daemon off; worker_processes 1; pid $work/$1/pid; error_log $work/$1.log crit; worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
  access_log off; keepalive_timeout 600s; keepalive_requests 100000000; tcp_nodelay on;
  client_body_temp_path $work/$1/body; proxy_temp_path $work/$1/proxy; fastcgi_temp_path $work/$1/fastcgi;
  uwsgi_temp_path $work/$1/uwsgi; scgi_temp_path $work/$1/scgi;
CONF
}

write_upstream() {
  local body
  body=$(printf '%*s' "$BODY_BYTES" '' | tr ' ' x)
  {
    nginx_top upstream
    echo "  server { listen $HOST:$UPSTREAM_PORT backlog=4096; location / { return 200 $body; } }"
    echo "}"
  } >"$work/upstream.conf"
}

# Sets $rate and $burst, per second and key. In `allowed` no request comes near the limit.
numbers() {
  if [ "$1" = denied ]; then rate=10 burst=10; else rate=100 burst=200; fi
}

write_tidegate() {
  local limits=''
  numbers "$1"
  [ "$1" = plain ] || limits='limits = ["each"]'
  {
    echo "listen = \"$HOST:$PROXY_PORT\""
    echo "workers = 1"
    if [ "$1" != plain ]; then
      echo "[limits.each]"
      echo "rate = \"$rate/s\""
      echo "burst = $burst"
      echo 'key = "header:x-api-key"'
    fi
    echo "[[routes]]"
    echo 'path = "/*"'
    echo "$limits"
    echo "upstream = \"http://$HOST:$UPSTREAM_PORT\""
    echo "[log]"
    echo 'access = "off"'
    echo 'level = "error"'
  } >"$work/tidegate.toml"
}

write_nginx() {
  local zone='' limit=''
  numbers "$1"
  if [ "$1" != plain ]; then
    # shellcheck disable=SC2016 # The variable is nginx' own.
    zone='limit_req_zone $http_x_api_key zone=each:16m rate='"${rate}r/s; limit_req_status 429; limit_req_log_level info;"
    limit="limit_req zone=each burst=$burst nodelay;"
  fi
  {
    nginx_top nginx
    cat <<CONF
  upstream up { server $HOST:$UPSTREAM_PORT; keepalive 128; keepalive_requests 100000000; }
  $zone
  server {
    listen $HOST:$PROXY_PORT backlog=4096;
    location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; $limit }
  }
}
CONF
  } >"$work/nginx.conf"
}

write_haproxy() {
  local table='' rules=''
  numbers "$1"
  if [ "$1" != plain ]; then
    table="  stick-table type string len 64 size 100k expire 600s store http_req_rate(1s)"
    rules="  http-request track-sc0 req.hdr(x-api-key)
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt $rate }"
  fi
  cat >"$work/haproxy.cfg" <<CONF
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  timeout http-keep-alive 600s
  http-reuse always
frontend front
  bind $HOST:$PROXY_PORT backlog 4096
$table
$rules
  default_backend back
backend back
  server one $HOST:$UPSTREAM_PORT
CONF
}

# Starts a proxy for a scenario; its process is $proxy.
start_proxy() {
  local peer=$1 scenario=$2 command
  "write_$peer" "$scenario"
  case "$peer" in
    tidegate) command=("$TIDEGATE" run -c "$work/tidegate.toml") ;;
    nginx) command=(nginx -p "$work" -c "$work/nginx.conf" -e "$work/nginx.log") ;;
    haproxy) command=(haproxy -db -f "$work/haproxy.cfg") ;;
  esac
  taskset -c "$proxy_core" "${command[@]}" >"$work/$peer.out" 2>&1 &
  proxy=$!
  started+=("$proxy")
  wait_for "$PROXY_PORT" "$proxy" || die "$peer does not start: $(cat "$work/$peer.out" "$work/$peer.log" 2>/dev/null)"
}

# ---------------------------------------------------------------- load and CPU

cat >"$work/load.lua" <<'LUA'
local requests, at = {}, 0

function init()
  local keys = tonumber(os.getenv("LOAD_KEYS"))
  for key = 1, keys do
    requests[key] = wrk.format("GET", "/some/path", { ["X-Api-Key"] = "key-" .. key })
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
LUA

# Loads the proxy for some seconds; prints requests, microseconds, responses of 400 and above, socket errors.
load() {
  local keys=$KEYS
  [ "$1" != denied ] || keys=1
  LOAD_KEYS=$keys taskset -c "$other_cores" wrk -t1 -c"$CONNECTIONS" -d"$2s" -s "$work/load.lua" \
    "http://$HOST:$PROXY_PORT/" | awk '/^RESULT/ { print $2, $3, $4, $5 }'
}

# CPU time of a process and its children, user and system, in clock ticks.
cpu() {
  local pids
  pids="$1 $(cat "/proc/$1/task/"*/children 2>/dev/null || true)"
  for pid in $pids; do cat "/proc/$pid/stat" 2>/dev/null || true; done |
    awk '{ sub(/^.*\) /, ""); ticks += $12 + $13 } END { print ticks + 0 }'
}

tick_hz=$(getconf CLK_TCK)

# One peer, one scenario, one round; appends "scenario round peer cpu_us requests_per_s denied_share".
measure() {
  local peer=$1 scenario=$2 round=$3 response before after requests spent denied errors
  start_proxy "$peer" "$scenario"
  response=$(curl -sS -o "$work/body" -w '%{http_code}' -H 'x-api-key: first' "http://$HOST:$PROXY_PORT/")
  response="$response, $(wc -c <"$work/body") bytes"
  [ "$response" = "200, $BODY_BYTES bytes" ] || die "$peer responds $response in $scenario"
  load "$scenario" 1 >/dev/null
  before=$(cpu "$proxy")
  read -r requests spent denied errors < <(load "$scenario" "$SECONDS_EACH")
  after=$(cpu "$proxy")
  stop "$proxy"
  unset 'started[-1]'
  [ "$requests" -gt 0 ] || die "$peer does not respond under load in $scenario"
  awk -v n="$requests" -v us="$spent" -v denied="$denied" -v errors="$errors" -v scenario="$scenario" \
    -v peer="$peer" -v round="$round" -v ticks="$((after - before))" -v hz="$tick_hz" 'BEGIN {
      share = denied / n
      if (errors > n / 1000) { print peer ": " errors " socket errors in " scenario > "/dev/stderr" }
      if (scenario == "denied" ? share < 0.9 : share > 0.001) {
        printf "%s denies %.1f %% in %s\n", peer, share * 100, scenario > "/dev/stderr"
        exit 1
      }
      print scenario, round, peer, ticks / hz * 1e6 / n, n / us * 1e6, share
    }' >>"$work/results" || die "the measurement is invalid"
}

# ---------------------------------------------------------------- rounds and tables

write_upstream
taskset -c "$other_cores" nginx -p "$work" -c "$work/upstream.conf" -e "$work/upstream.log" >"$work/upstream.out" 2>&1 &
started+=($!)
wait_for "$UPSTREAM_PORT" "${started[0]}" || die "the upstream does not start: $(cat "$work/upstream.out")"

read -ra order <<<"$PEERS"
read -ra wanted <<<"$SCENARIOS"
say "About $(((SECONDS_EACH + 2) * ROUNDS * ${#order[@]} * ${#wanted[@]} / 60 + 1)) minutes: ${#wanted[@]} scenarios, ${#order[@]} proxies, $ROUNDS rounds of $SECONDS_EACH s; proxy on core $proxy_core, the rest on $other_cores."
for round in $(seq "$ROUNDS"); do
  for scenario in "${wanted[@]}"; do
    say "round $round of $ROUNDS, $scenario"
    for peer in "${order[@]}"; do measure "$peer" "$scenario" "$round"; done
  done
  order=("${order[@]:1}" "${order[0]}")
done

printf '%s; %s; %s\n' "$("$TIDEGATE" --version)" "$(nginx -v 2>&1 | sed 's/.*: //')" "$(haproxy -v | sed -n '1s/ [0-9/]* - .*//p')"
awk -v base="$BASE_PEER" -v peers="$PEERS" -v scenarios="$SCENARIOS" '
  function median(values, count,   i, j, swap) {
    for (i = 2; i <= count; i++)
      for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
        swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap
      }
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
  }
  { cpu[$1, $2, $3] = $4; rate[$1, $2, $3] = $5; share[$1, $3] = $6; if ($2 > rounds) rounds = $2 }
  END {
    count = split(peers, peer, " ")
    scenario_count = split(scenarios, scenario, " ")
    for (s = 1; s <= scenario_count; s++) {
      name = scenario[s]
      printf "\n%-10s %12s %12s %12s %12s %9s\n", name, "CPU us/req", "x " base, "requests/s", "x " base, "denied"
      for (p = 1; p <= count; p++) {
        for (r = 1; r <= rounds; r++) {
          spent[r] = cpu[name, r, peer[p]]; served[r] = rate[name, r, peer[p]]
          spent_ratio[r] = spent[r] / cpu[name, r, base]; served_ratio[r] = served[r] / rate[name, r, base]
        }
        printf "%-10s %12.2f %12.2f %12.0f %12.2f %8.1f%%\n", peer[p], median(spent, rounds),
          median(spent_ratio, rounds), median(served, rounds), median(served_ratio, rounds), share[name, peer[p]] * 100
      }
    }
    print "\nMedians of " rounds " rounds; a ratio is the median of the ratios of each round. Less CPU and more requests are better."
  }' "$work/results"
