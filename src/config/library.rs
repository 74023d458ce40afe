//! Reading a file for the library (`tidegate::limits`): its limits, routes, clients and store. Sections and keys that are about
//! listening, forwarding and operating a proxy are ignored, so that a program can read the file of the proxies beside it.

use bytes::Bytes;
use http::StatusCode;

use super::table::AnyTable;
use crate::proxy::Target;

/// The keys of the file that say where a proxy listens, what it forwards to, and how it is operated.
const SECTIONS: [&str; 14] = [
    "listen",
    "listeners",
    "workers",
    "shutdown_delay",
    "shutdown_grace",
    "watch",
    "upstreams",
    "descriptors",
    "cors",
    "log",
    "tracing",
    "admin",
    "acme",
    "tests",
];

/// The keys of a route that say what a proxy does with a request.
const ACTIONS: [&str; 9] = [
    "upstream",
    "response_timeout",
    "stall_timeout",
    "total_timeout",
    "retries",
    "respond",
    "rewrite",
    "request_headers",
    "cors",
];

/// Excludes the sections that the library ignores, if the file is read for it.
pub(super) fn exclude_sections(top: &mut AnyTable<'_>) {
    exclude(top, &SECTIONS);
}

/// Excludes the keys of a route that the library ignores, if the file is read for it.
pub(super) fn exclude_actions(route: &mut AnyTable<'_>) {
    exclude(route, &ACTIONS);
}

fn exclude(table: &mut AnyTable<'_>, keys: &[&'static str]) {
    if table.reader.is_for_library() {
        for key in keys {
            table.exclude(key);
        }
    }
}

/// The action of a route that does not block requests. It is never taken: the program itself responds.
pub(super) fn action() -> Target {
    Target::Respond { status: StatusCode::NOT_FOUND, body: Bytes::new() }
}
