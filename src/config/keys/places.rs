//! The tables that have a key, to help where a key is in the wrong one.

use super::key::{Keys, Kind};

/// More places than these say nothing.
const MOST: usize = 2;

/// The tables that have a key of this name, as the file writes them: `[store]`, or `health` in `[upstreams.NAME]`. None
/// if there are many. `file` has the keys of the file itself.
#[must_use]
pub fn places(file: &Keys, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in file.all {
        let heading = match &key.kind {
            Kind::Named(_) => format!("[{}.NAME]", key.name),
            Kind::List(_) => format!("[[{}]]", key.name),
            _ => format!("[{}]", key.name),
        };
        for (keys, _) in key.kind.tables() {
            add(name, keys, &heading, &mut found);
        }
    }
    if found.len() > MOST { Vec::new() } else { found }
}

fn add(name: &str, keys: &Keys, place: &str, found: &mut Vec<String>) {
    if keys.get(name).is_some() {
        found.push(place.to_owned());
    }
    for key in keys.all {
        // Tables below names that the user chooses repeat the keys of the table above them.
        for (inner, _) in key.kind.tables().into_iter().filter(|(_, has_names)| !has_names) {
            add(name, inner, &format!("`{}` in {place}", key.name), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeySet as _;
    use crate::config::top::TopKeys;

    fn places(name: &str) -> Vec<String> {
        super::places(TopKeys::KEYS, name)
    }

    #[test]
    fn a_key_is_found_in_its_tables() {
        assert_eq!(places("trusted_proxies"), ["[client_ip]"]);
        assert_eq!(places("strip_prefix"), ["`rewrite` in [[routes]]"]);
        assert_eq!(places("unhealthy_after"), ["`health` in [upstreams.NAME]"]);
        assert_eq!(places("burst"), ["[limits.NAME]"]);
        assert!(places("tls").is_empty(), "there are more than two");
        assert!(places("colour").is_empty());
    }
}
