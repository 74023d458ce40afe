//! The plugin `request-size-limiting`.

use crate::document::DocNode;
use crate::model::TomlRoute;

/// The default of `allowed_payload_size`.
const DEFAULT_SIZE: u64 = 128;
/// The most units of a size: `max_body` is at most 1 PiB.
const MOST_UNITS: u64 = 1 << 30;

/// Limits the size of bodies. Returns whether a route can do so.
pub(super) fn limit_body(node: &DocNode, route: &mut TomlRoute) -> bool {
    let config = node.get("config");
    let unit = match config.get("size_unit").text() {
        None | Some("megabytes") => "MiB",
        Some("kilobytes") => "KiB",
        Some("bytes") => "B",
        Some(_) => return false,
    };
    let size = config.get("allowed_payload_size");
    let size = if size.is_present() { size.number() } else { Some(DEFAULT_SIZE) };
    let needs_length = config.get("require_content_length").is_true();
    let Some(size) = size.filter(|size| (1..=MOST_UNITS).contains(size) && !needs_length) else {
        return false;
    };
    route.max_body = Some(format!("{size}{unit}"));
    true
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert, toml};

    #[test]
    fn sizes_timeouts_and_reports_change_nothing() {
        let text = "services:\n- name: s\n  url: http://10.0.0.1\n  connect_timeout: 2000\n  read_timeout: 9000\n  write_timeout: 9000\n  \
                    routes: [{ name: r, paths: [/a] }]\nplugins:\n- { name: prometheus }\n- { name: http-log }\n- { name: rate-limiting, \
                    config: { minute: 5, limit_by: ip, hide_client_headers: false } }\n- { name: request-size-limiting, config: { \
                    allowed_payload_size: 4, size_unit: kilobytes } }\n";
        let file = SourceFile { name: "f", text, directory: Path::new("") };
        let converted = convert(SourceFormat::Kong, &[file]).unwrap();
        assert!(converted.findings().iter().all(|it| !it.changes_behaviour), "{:?}", converted.findings());
        let toml = toml(&converted, "");
        for line in [
            "max_body = \"4KiB\"",
            "connect_timeout = \"2s\"",
            "response_timeout = \"9s\"\nstall_timeout = \"9s\"",
        ] {
            assert!(toml.contains(line), "{line}: {toml}");
        }
        assert_eq!(converted.account.access.converted, 1);
    }
}
