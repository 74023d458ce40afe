#!/bin/sh
# The clients of compose.yaml: three consumers within their limits, one that ignores Retry-After, and a crawler with 50
# addresses that comes for a minute in every CRAWL_PAUSE seconds.
set -eu

URL=${URL:?the URL of tidegate}
CRAWL_PAUSE=${CRAWL_PAUSE:-240}

# Ends the clients too; they also end when this shell does.
trap 'trap - TERM; kill 0' INT TERM

# One consumer, forever: its key, its address, the path, and the seconds between two requests.
consumer() {
  while kill -0 "$$" 2>/dev/null; do
    curl -s -o /dev/null -m 10 -H "x-api-key: $1" -H "x-forwarded-for: $2" "$URL$3" || sleep 1
    sleep "$4"
  done
}

crawler() {
  while kill -0 "$$" 2>/dev/null; do
    sleep "$CRAWL_PAUSE"
    end=$(($(date +%s) + 60))
    while [ "$(date +%s)" -lt "$end" ]; do
      for host in $(seq 1 50); do
        curl -s -o /dev/null -m 10 -H "x-forwarded-for: 203.0.113.$host" "$URL/catalogue/[1-60]" || sleep 1
      done
    done
  done
}

consumer acme 198.51.100.1 '/v1/orders?wait=20ms' 0.7 &
consumer globex 198.51.100.2 '/v1/users?wait=5ms' 0.9 &
consumer initech 198.51.100.3 '/v1/reports?wait=250ms' 1 &
# 120 a minute are allowed: this one sends 40 at a time, twenty times a minute.
consumer hooli 198.51.100.4 '/v1/users?page=[1-40]' 3 &
crawler &
wait
