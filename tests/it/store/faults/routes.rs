//! The limits of a trial, and the routes that have them.

/// Whether limits have `ahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    Off,
    On,
}

impl Ahead {
    /// How many of `rounds` a trial needs. Half of them show what is charged; the delays of requests are measured without
    /// `ahead`.
    pub fn rounds(self, rounds: usize) -> usize {
        match self {
            Self::Off => rounds,
            Self::On => rounds.div_ceil(2),
        }
    }
}

/// How long a grant lasts: less than an outage.
const SPAN: &str = "300ms";

/// A route for each value of `on_store_failure`, and `/all` with two limits. The limit of `/exact` has too few units to grant
/// some.
const ROUTES: &str = r#"
    listen = "127.0.0.1:0"
    workers = 2
    [admin]
    listen = "127.0.0.1:0"
    [limits.local]
    rate = "1/day"
    burst = 100000
    key = "route"
    ahead = "off"
    [limits.allow]
    rate = "1/day"
    burst = 100000
    key = "route"
    ahead = "off"
    on_store_failure = "allow"
    [limits.deny]
    rate = "1/day"
    burst = 100000
    key = "route"
    ahead = "off"
    on_store_failure = "deny"
    [limits.first]
    algorithm = "gcra"
    rate = "1/day"
    burst = 99999
    key = "route"
    ahead = "off"
    on_store_failure = "deny"
    [limits.second]
    algorithm = "sliding_window"
    rate = "100000/day"
    key = "route"
    ahead = "off"
    on_store_failure = "local"
    [limits.exact]
    rate = "1/day"
    burst = 5
    key = "header:x-key"
    on_store_failure = "deny"
    [[routes]]
    name = "local"
    path = "/local"
    limits = ["local"]
    respond = { status = 200 }
    [[routes]]
    name = "allow"
    path = "/allow"
    limits = ["allow"]
    respond = { status = 200 }
    [[routes]]
    name = "deny"
    path = "/deny"
    limits = ["deny"]
    respond = { status = 200 }
    [[routes]]
    name = "all"
    path = "/all"
    limits = ["first", "second"]
    respond = { status = 200 }
    [[routes]]
    path = "/exact"
    limits = ["exact"]
    respond = { status = 200 }
    [[routes]]
    path = "/free"
    respond = { status = 200 }
"#;

/// The routes and limits of a trial.
pub fn routes(ahead: Ahead) -> String {
    if ahead == Ahead::Off {
        return ROUTES.to_owned();
    }
    let ahead = ROUTES.replace("ahead = \"off\"", &format!("ahead = \"{SPAN}\""));
    // A request with units of the first limit would be counted locally by the second, and not in Redis.
    ahead.replace("on_store_failure = \"local\"", "on_store_failure = \"deny\"")
}
