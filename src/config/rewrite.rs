//! A route's `rewrite`.

use http::HeaderValue;

use super::item::{Item, Text};
use super::keys::keys;
use super::report::Problem;
use super::table::Table;
use crate::gate::{PathPattern, host_of, normalize};
use crate::proxy::Rewrite;
use crate::upstream::HostRule;

keys! {
    /// The keys of `rewrite`.
    RewriteKeys {
        /// A prefix of the path to remove, in whole segments
        strip_prefix: Text;
        /// The Host header: `"upstream"` for the host of the server, or a name
        host: Text, or "the client's";
    }
}

/// Reads `{ strip_prefix = "/v1", host = "upstream" }`.
pub(super) fn rewrite(item: Option<Item<'_>>, path: Option<&PathPattern>) -> Option<Rewrite> {
    let Some(item) = item else { return Some(Rewrite::default()) };
    let table = Table::<RewriteKeys>::of(item, "`rewrite`")?;
    let strip_prefix = table.strip_prefix().with(|item| prefix(item, path));
    let host = table.host().with(host);
    table.close();
    Some(Rewrite { strip_prefix: strip_prefix.ok()?, host: host.ok()?.unwrap_or_default() })
}

fn prefix(item: Item<'_>, path: Option<&PathPattern>) -> Option<Box<str>> {
    let text = item.string()?;
    let help = "write whole segments, such as \"/v1\" or \"/api/v1\"";
    let prefix = text.parsed("a prefix that can be removed from a path", help, |text| {
        let normal = normalize(text).ok().filter(|normal| !normal.encoded_slash)?;
        let prefix = normal.matched().trim_end_matches('/');
        (prefix.starts_with('/') && !text.contains(['*', '{', '}', '?', '#'])).then(|| Box::from(prefix))
    })?;
    if let Some(path) = path {
        warn_if_never_removed(&text, &prefix, path);
    }
    Some(prefix)
}

/// Warns where no path of the route can start with the prefix.
fn warn_if_never_removed(text: &Text<'_>, prefix: &str, path: &PathPattern) {
    let pattern = path.to_string();
    let fixed = &pattern[..pattern.find(['{', '*']).unwrap_or(pattern.len())];
    let prefix_slash = format!("{prefix}/");
    let may_start = fixed == prefix
        || fixed.starts_with(&prefix_slash)
        || (fixed.len() < pattern.len() && prefix_slash.starts_with(fixed));
    if !may_start {
        let title = format!(
            "`strip_prefix` removes nothing: no path of this route (`{pattern}`) starts with this prefix"
        );
        text.item.reader.report(Problem::warning(text.item.span(), title));
    }
}

fn host(item: Item<'_>) -> Option<HostRule> {
    let text = item.string()?;
    if text.value == "upstream" {
        return Some(HostRule::Upstream);
    }
    text.parsed("a host", "write \"upstream\", or a name such as \"api.internal\"", |text| {
        host_of(text)?;
        HeaderValue::from_str(text).ok().map(HostRule::Named)
    })
}
