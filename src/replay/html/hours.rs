//! Small pictures of the hours of the day.

use maud::{Markup, PreEscaped, html};

use super::text::grouped;
use crate::plot::bars;

/// A picture of how many `what` there are in each hour of the day.
pub(super) fn hours(counts: &[u64; 24], what: &str) -> Markup {
    let most = counts.iter().enumerate().max_by_key(|(hour, count)| (**count, std::cmp::Reverse(*hour)));
    let name = match most {
        Some((hour, count)) if *count > 0 => {
            format!("{what} by hour of the day: most from {hour} to {} h, {}", hour + 1, grouped(*count))
        }
        _ => format!("no {what}"),
    };
    html! { span class={ "hours " (what) } { (PreEscaped(bars(counts, &name))) } }
}
