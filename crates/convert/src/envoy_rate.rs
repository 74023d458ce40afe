//! What a descriptor of Envoy's rate-limit service allows.

use super::document::DocNode;

/// What a descriptor allows.
pub(super) enum Allowance {
    /// So many requests in a period.
    Rate(String),
    /// No request.
    None,
}

/// The allowance of a descriptor, in windows that start at multiples of their length, as those of the service do.
pub(super) fn allowance(node: &DocNode) -> Option<Allowance> {
    let limit = node.get("rate_limit");
    let units = limit.get("requests_per_unit").number()?;
    let period = match &*limit.get("unit").text()?.to_ascii_lowercase() {
        "second" => "s",
        "minute" => "minute",
        "hour" => "hour",
        "day" => "day",
        // Weeks, months and years of the service are multiples of days, and not those of the calendar.
        "week" => "168h",
        "month" => "720h",
        "year" => "8760h",
        _ => return None,
    };
    Some(if units == 0 { Allowance::None } else { Allowance::Rate(format!("{units}/{period}")) })
}
