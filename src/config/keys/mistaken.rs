//! Names that people try in a table because other programs have them, each with what to write instead.

use super::key::{ANY_NAME, Mistaken};

pub const IN_TOP: &[Mistaken] = &[
    (&["port", "address", "addr", "bind", "host", "http", "server"], "write listen = \"127.0.0.1:8080\""),
    (&["redis", "database", "backend"], "write [store] with url = \"redis://127.0.0.1:6379\""),
    (
        &["rate_limit", "rate_limits", "ratelimit", "ratelimits"],
        "write [limits.NAME] with rate = \"100/minute\"",
    ),
    (
        &["services", "service", "clusters", "cluster", "backends", "servers"],
        "write [upstreams.NAME] with servers = [\"http://10.0.1.5:9000\"]",
    ),
    (&["locations", "location", "paths", "path", "rules", "rule"], "write [[routes]] with path = \"/api/*\""),
    (
        &["timeout", "timeouts"],
        "servers have timeouts in [upstreams.NAME], such as `response_timeout`, and clients in [[listeners]], such as \
         `idle_timeout`",
    ),
    (
        &["tls", "ssl", "https", "cert", "certs", "certificate", "certificates"],
        "write [[listeners]] with address = \"0.0.0.0:443\" and tls = { certificates = [{ cert = \"api.pem\", key = \
         \"api.key\" }] }",
    ),
    (
        &["metrics", "prometheus", "dashboard", "health", "api"],
        "write [admin] with listen = \"127.0.0.1:9900\"",
    ),
    (
        &["log_level", "logging", "logs", "access_log"],
        "write [log] with level = \"info\" and access = \"json\"",
    ),
    (&["threads", "worker_processes", "worker_threads", "cpus"], "write workers = 4"),
    (&["api_keys", "keys", "users", "clients"], "write [consumers] with file = \"consumers.toml\""),
    (&["includes", "import", "imports", "files"], "write include = [\"routes/*.toml\"]"),
];

pub const IN_ACME: &[Mistaken] = &[
    (
        &["ca_server", "caserver", "server", "acme_ca", "url", "endpoint"],
        "write directory = \"https://acme-v02.api.letsencrypt.org/directory\"",
    ),
    (&["agree_to_terms", "agree_tos", "terms_agreed", "tos"], "write terms_of_service_agreed = true"),
    (&["domains", "names", "hosts"], "name them in a listener: tls = { acme = [\"api.example.com\"] }"),
    (&["contact", "account_email", "mail"], "write email = \"ops@example.com\""),
    (
        &["http_challenge", "httpchallenge", "tls_challenge", "tlschallenge", "dns_challenge", "challenges"],
        "write challenge = \"http-01\" or \"tls-alpn-01\"; DNS-01 is not offered",
    ),
];

pub const IN_LISTENER: &[Mistaken] = &[
    (&["listen", "port", "host", "addr", "bind", "ip"], "write address = \"0.0.0.0:8080\""),
    (
        &["cert", "key", "certificate", "certificates", "ssl", "https", "cert_file", "key_file"],
        "write tls = { certificates = [{ cert = \"api.pem\", key = \"api.key\" }] }",
    ),
    (
        &["timeout", "timeouts", "read_timeout", "write_timeout"],
        "a listener has `handshake_timeout`, `header_timeout`, `body_timeout` and, between requests, `idle_timeout`",
    ),
    (&["http2", "h2", "protocol"], "write protocols = [\"h2\", \"h1\"]"),
];

const CERTIFICATE_FILES: Mistaken = (
    &["cert", "key", "certificate", "private_key", "cert_file", "key_file", "pem"],
    "write certificates = [{ cert = \"api.pem\", key = \"api.key\" }]",
);

const CAPACITY: Mistaken = (
    &["capacity", "size", "bucket_size", "burst_size", "bursts", "max_burst", "max_tokens"],
    "write burst = 20: how many units may be spent at once",
);

const IN_FLIGHT: Mistaken = (
    &["concurrency", "concurrent", "max_concurrent", "max_concurrency", "connections", "max_connections"],
    "write algorithm = \"concurrency\" and max_in_flight = 20",
);

pub const IN_LIMIT: &[Mistaken] = &[
    CAPACITY,
    IN_FLIGHT,
    (
        &["shadow", "shadow_mode", "dry_run", "dryrun", "report_only", "log_only", "monitor", "preview"],
        "write mode = \"shadow\"",
    ),
    (
        &["soft", "soft_limit", "warn", "warning", "warning_at", "threshold"],
        "write warn_at = 0.8, or mode = \"mark\"",
    ),
    (
        &["timeout", "timeouts"],
        "a limit has none: `rate` has its period, `ban` denies a key for longer, [store] has the `timeout` of calls to \
         Redis, and [upstreams.NAME] has those of servers",
    ),
    (
        &["type", "kind", "strategy", "policy"],
        "write algorithm = \"token_bucket\", or leave it out for that one",
    ),
    (
        &["by", "key_by", "group_by", "scope", "keys", "descriptor", "descriptors", "identifier", "zone"],
        "write key = \"client_ip\", or another part of a request, such as \"header:x-api-key\"",
    ),
    (
        &["path", "paths", "route", "routes", "match", "hosts", "host", "methods", "method"],
        "a limit applies to the routes that name it: [[routes]] with limits = [\"NAME\"]",
    ),
    (
        &["status", "status_code", "code", "message", "body", "response", "content_type"],
        "the response to denied requests is in [answers]: denied = { status = 429, body = \"wait {retry_after} seconds\" }",
    ),
    (&["store", "redis", "backend", "storage", "url"], "all limits are counted where [store] says"),
    (
        &["enabled", "disabled", "active", "enforce", "enforced"],
        "write mode = \"shadow\" to count without denials, or leave the limit out of the `limits` of all routes",
    ),
    (
        &["whitelist", "allowlist", "exempt", "exclude", "except", "skip", "bypass"],
        "write allow = [\"10.0.0.0/8\"]",
    ),
    (&["blacklist", "blocklist", "denylist", "deny"], "write block = [\"192.0.2.0/24\"]"),
    (
        &[
            "fallback",
            "on_error",
            "on_failure",
            "fail_open",
            "fail_closed",
            "failure_mode",
            "failure_mode_deny",
        ],
        "write on_store_failure = \"local\", \"allow\" or \"deny\"",
    ),
    (
        &["delay", "nodelay", "wait", "max_delay", "max_wait"],
        "to delay requests instead of denying them, write algorithm = \"leaky_bucket\" and queue = 20",
    ),
    (&["weight", "hits_addend", "tokens", "price"], "write cost = 1: the units that a request spends"),
    (
        &["plan", "plans", "tier"],
        "write tiers = { by = \"header:x-plan\", pro = { rate = \"1000/minute\" } }",
    ),
    (
        &["penalty", "cooldown", "lockout", "ban_for", "ban_time", "block_for", "block_duration"],
        "write ban = { after = 20, within = \"1m\", for = \"10m\" }",
    ),
];

pub const IN_COST: &[Mistaken] = &[
    (
        &["estimate", "estimated", "initial", "on_arrival", "take", "min", "default"],
        "write reserve = 1: what a request takes when it arrives",
    ),
    (&["actual", "final", "charge", "response", "commit", "value"], "write settle = \"header:x-cost\""),
    (
        &["input", "output", "cached_input", "cache_write", "reasoning", "tokens"],
        "write llm = { input = 1, output = 1 }",
    ),
    (&["max", "maximum"], "write `cost_max` in the limit itself"),
];

pub const IN_WEIGHTS: &[Mistaken] = &[
    (&["prompt", "prompt_tokens", "input_tokens", "request", "in"], "write input = 1"),
    (&["completion", "completion_tokens", "output_tokens", "response", "out"], "write output = 1"),
    (
        &["cached", "cache", "cache_read", "cache_read_input_tokens", "cached_tokens", "input_cached"],
        "write cached_input = 0.1",
    ),
    (&["cache_creation", "cache_creation_input_tokens", "cache_write_tokens"], "write cache_write = 1.25"),
    (&["thinking", "reasoning_tokens", "thoughts"], "write reasoning = 1"),
];

pub const IN_PRICES: &[Mistaken] =
    &[(&[ANY_NAME], "name models in `models`: [models.\"gpt-4o*\"] with `input` and `output`")];

pub const IN_ROUTE: &[Mistaken] = &[
    (
        &["rate", "burst", "key", "algorithm", "rate_limit", "ratelimit", "rate_limits"],
        "define a limit, [limits.per-client] with rate = \"100/minute\", and name it here: limits = [\"per-client\"]",
    ),
    (
        &["timeout", "timeouts", "read_timeout", "request_timeout", "proxy_read_timeout"],
        "`response_timeout` bounds the wait for a response, `stall_timeout` its pauses, and `total_timeout` all of it; \
         `connect_timeout` is in [upstreams.NAME]",
    ),
    (
        &[
            "proxy_pass",
            "backend",
            "target",
            "url",
            "service",
            "server",
            "servers",
            "to",
            "proxy",
            "forward_to",
        ],
        "write upstream = \"http://127.0.0.1:9000\"",
    ),
    (
        &["prefix", "path_prefix", "uri", "location", "pattern", "match", "paths", "route"],
        "write path = \"/api/*\"",
    ),
    (&["strip_prefix", "rewrite_path", "strip_path"], "write rewrite = { strip_prefix = \"/api\" }"),
    (&["domain", "domains", "hosts", "hostname", "server_name", "vhost"], "write host = \"api.example.com\""),
    (&["verb", "verbs"], "write methods = [\"GET\"]"),
    (&["status", "body", "return", "response"], "write respond = { status = 200, body = \"ok\\n\" }"),
    (
        &["redirect", "redirect_to", "location_header"],
        "write respond = { status = 308 } and response_headers = { set = { location = \"https://example.com/\" } }",
    ),
    (&["deny", "forbid", "disabled"], "write block = true"),
    (&["class", "criticality", "importance", "weight"], "write priority = \"critical\""),
    (
        &["auth", "auth_request", "forward_auth", "forwardauth", "ext_authz", "authorization"],
        "write authorize = { upstream = \"http://127.0.0.1:9091\", path = \"/verify\" }",
    ),
    (&["max_body_size", "body_limit", "client_max_body_size"], "write max_body = \"10MiB\""),
];

const UNVERIFIED: &[&str] = &[
    "insecure",
    "skip_verify",
    "insecure_skip_verify",
    "tls_skip_verify",
    "verify",
    "verify_tls",
    "ssl_verify",
];

pub const IN_UPSTREAM: &[Mistaken] = &[
    (
        &["timeout", "timeouts", "read_timeout", "request_timeout", "proxy_read_timeout"],
        "`connect_timeout` bounds the connection, `response_timeout` the wait for a response, `stall_timeout` its \
         pauses, and `total_timeout` all of it",
    ),
    (
        &[
            "url",
            "urls",
            "server",
            "address",
            "addresses",
            "target",
            "targets",
            "endpoints",
            "hosts",
            "backends",
            "nodes",
        ],
        "write servers = [\"http://10.0.1.5:9000\"]",
    ),
    (
        &["lb", "lb_policy", "algorithm", "policy", "load_balancing", "strategy", "method"],
        "write balance = \"round_robin\"",
    ),
    (
        UNVERIFIED,
        "certificates are always verified: name the authority that has signed them, tls = { ca = \"internal.pem\" }",
    ),
    (&["http2", "h2", "grpc", "http_version"], "write protocol = \"h2\""),
    (&["health_check", "healthcheck", "health_checks"], "write health = { path = \"/healthz\" }"),
    (
        &["circuit_breaker", "outlier_detection", "max_fails", "fail_timeout"],
        "write eject = { after = 5, for = \"30s\" }",
    ),
    (
        &[
            "adaptive_concurrency",
            "concurrency",
            "limit",
            "load_shedding",
            "max_concurrency",
            "max_in_flight",
        ],
        "write overload = true for a limit that is learned, or overload = { limit = 64 }",
    ),
];

pub const IN_OVERLOAD: &[Mistaken] = &[
    (
        &["max", "min", "limits", "max_concurrency", "concurrency"],
        "write limit = 64, or min_limit and max_limit",
    ),
    (
        &["max_pending", "queue", "max_queue", "pending_timeout", "timeout"],
        "the queue is bounded by `max_pending` and `pending_timeout` of the upstream",
    ),
    (&["key", "by", "fair", "fairness"], "write fair_by = \"client_ip\""),
    (&["reserve", "reserved", "reserved_shares"], "write reserved_share = { critical = 0.2 }"),
    (
        &["enabled", "dry_run", "report_only"],
        "write mode = \"shadow\" to refuse nothing, or overload = false",
    ),
];

pub const IN_RESERVED_SHARE: &[Mistaken] =
    &[(&["low"], "no class is below `low`, so that a share of it would reserve nothing")];

pub const IN_CLIENT_TLS: &[Mistaken] = &[
    (
        UNVERIFIED,
        "certificates are always verified: name the authority that has signed them, ca = \"internal.pem\"",
    ),
    (&["ca_file", "cacert", "ca_cert", "root", "roots", "authority"], "write ca = \"internal.pem\""),
    (
        &["certificates", "certificate", "cert_file", "key_file", "client_cert", "client_key"],
        "for a client certificate write cert = \"client.pem\" and key = \"client.key\"",
    ),
    (&["sni", "name", "servername", "host"], "write server_name = \"api.internal\""),
];

pub const IN_STORE: &[Mistaken] = &[
    (
        &["type", "kind", "backend", "redis", "driver"],
        "write url = \"redis://127.0.0.1:6379\", or leave it out to count in this process",
    ),
    (
        &["host", "port", "address", "addr", "server", "username", "user", "password", "db", "database"],
        "write all of it as one URL: url = \"redis://user:${REDIS_PASSWORD}@127.0.0.1:6379/0\"",
    ),
    (
        &["cluster", "nodes", "sentinel", "sentinels", "master", "master_name", "service"],
        "write url = \"redis-cluster://a:6379,b:6379\" or \"redis-sentinel://a:26379,b:26379/?service=NAME\"",
    ),
    (&["ssl", "secure"], "write url = \"rediss://redis.internal:6380\", where rediss is Redis over TLS"),
];

pub const IN_LOG: &[Mistaken] = &[
    (&["format", "type", "access_log"], "write access = \"json\", \"text\" or \"off\""),
    (
        &["file", "path", "output", "error_log"],
        "the access log goes to standard output, or to the file that access_file names; the log goes to standard error",
    ),
];

/// Help for consumers in the configuration file.
pub const CONSUMERS: &str = "consumers are in a file of their own: write [consumers] with file = \"consumers.toml\", and into that file \
                             [alice] with credentials = [\"k-4711\"]";

pub const IN_CONSUMERS: &[Mistaken] = &[(&[ANY_NAME], CONSUMERS)];

pub const IN_SERVER_TLS: &[Mistaken] = &[CERTIFICATE_FILES];

pub const IN_NUMBERS: &[Mistaken] = &[CAPACITY, IN_FLIGHT];

pub const IN_HEALTH: &[Mistaken] = &[(&["uri", "url", "endpoint", "http_path"], "write path = \"/healthz\"")];

pub const IN_ADMIN: &[Mistaken] =
    &[(&["address", "addr", "bind", "host", "port"], "write listen = \"127.0.0.1:9900\"")];

#[cfg(test)]
mod tests {
    use super::super::{DeclaredKeys as _, TableKeys};
    use crate::config::limits::LimitKeys;
    use crate::config::top::TopKeys;

    /// The lists of all tables below these keys.
    fn check(keys: &'static TableKeys) -> usize {
        let mut seen = std::collections::HashSet::new();
        for name in keys.mistaken.iter().flat_map(|(names, _)| *names) {
            assert!(keys.get(name).is_none(), "`{name}` is a key");
            assert!(seen.insert(name), "`{name}` has two cures");
            assert_eq!(**name, name.replace('-', "_").to_ascii_lowercase());
            assert!(keys.cure(name).is_some());
        }
        let tables = keys.all.iter().flat_map(|key| key.kind.tables());
        seen.len() + tables.map(|(keys, _)| check(keys)).sum::<usize>()
    }

    #[test]
    fn a_mistaken_name_is_no_key_of_its_table_and_has_one_cure() {
        assert!(check(TopKeys::KEYS) > 100);
    }

    #[test]
    fn names_are_found_with_dashes_and_capitals() {
        assert_eq!(LimitKeys::KEYS.cure("Dry-Run"), Some("write mode = \"shadow\""));
        assert_eq!(LimitKeys::KEYS.cure("colour"), None);
    }
}
