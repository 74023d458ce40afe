//! What the reference rate-limit service does not start with: the checks that its `src/config/config_impl.go` makes of a file.

use std::collections::HashSet;

use super::document::DocNode;
use super::note::Note;

/// The keys that a file may have, wherever they are.
const KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// The keys that are true or false.
const FLAGS: [&str; 6] =
    ["unlimited", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold"];

/// The words for true and false in YAML 1.1, in lower case.
const BOOLEANS: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "y", "n"];

const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// Notes on all parts of files with which the service does not start. A file without a domain has a note of its own.
pub(super) fn refusals(roots: &[DocNode]) -> Vec<Note> {
    let mut refusals = Refusals::default();
    let mut domains = HashSet::new();
    for root in roots {
        let domain = root.get("domain");
        let Some(name) = domain.text().filter(|name| !name.is_empty()) else { continue };
        refusals.keys(root);
        if !domains.insert(name) {
            let reason = "another file has this domain, and MERGE_DOMAIN_CONFIG is off by default";
            refusals.refuse(domain, &format!("domain: {name}"), reason);
        }
        refusals.descriptors(root.get("descriptors"), name);
    }
    refusals.notes
}

/// Notes on the keys of a node that are not converted, except for those that have a note because the service does not know them.
pub(super) fn remarks(node: &DocNode, known: &[&str]) -> Vec<Note> {
    let unknown = node.entries().iter().map(|(key, _)| &**key).filter(|key| !KEYS.contains(key));
    node.remarks(&known.iter().copied().chain(unknown).collect::<Vec<_>>())
}

#[derive(Default)]
struct Refusals {
    notes: Vec<Note>,
    /// The descriptors so far: domain and composite keys, each after a byte that none of them has.
    seen: HashSet<String>,
}

impl Refusals {
    fn refuse(&mut self, node: &DocNode, text: &str, reason: impl AsRef<str>) {
        let reason = format!("the rate-limit service does not start with this file: {}", reason.as_ref());
        self.notes.push(Note::finding(&node.place, text, reason));
    }

    /// Checks the keys of a map, and of all maps in it except in `metadata`.
    fn keys(&mut self, node: &DocNode) {
        for (key, value) in node.entries() {
            let text = value.text().map_or_else(|| key.clone(), |text| format!("{key}: {text}"));
            if !KEYS.contains(&&**key) {
                self.refuse(value, &text, format!("it knows no key `{key}`"));
            }
            if key == "metadata" {
                continue;
            }
            let is_flag = FLAGS.contains(&&**key) && value.is_present();
            if is_flag && !value.text().is_some_and(|text| BOOLEANS.contains(&&*text.to_ascii_lowercase())) {
                self.refuse(value, &text, "it is neither true nor false");
            }
            let is_number = || value.text().is_some_and(|text| text.parse::<u32>().is_ok());
            if key == "requests_per_unit" && value.is_present() && !is_number() {
                self.refuse(value, &text, "it is no whole number of 32 bits");
            }
            let is_list = matches!(&**key, "descriptors" | "replaces");
            if is_list && value.is_present() && !value.is_list() {
                self.refuse(value, &text, "it is no list");
            }
            if key == "rate_limit" && value.is_present() && !value.is_map() {
                self.refuse(value, &text, "it is no map");
            }
            for item in value.items() {
                if !item.is_map() {
                    self.refuse(item, item.text().unwrap_or("-"), "a list has something other than maps");
                }
                self.keys(item);
            }
            self.keys(value);
        }
    }

    /// Checks descriptors below `parent`.
    fn descriptors(&mut self, list: &DocNode, parent: &str) {
        for node in list.items().iter().filter(|node| node.is_map()) {
            let (key, value) =
                (node.get("key").text().unwrap_or_default(), node.get("value").text().unwrap_or_default());
            let composite = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
            if key.is_empty() {
                self.refuse(node, "key", "a descriptor has no key");
            }
            let path = format!("{parent}\0{composite}");
            if !self.seen.insert(path.clone()) && !key.is_empty() {
                let reason = format!("another descriptor has the same composite key, `{composite}`");
                self.refuse(node, &composite, reason);
            }
            if node.get("share_threshold").is_true() && !composite.contains('*') {
                let reason = "without `*` in the value there is nothing to share";
                self.refuse(node.get("share_threshold"), "share_threshold: true", reason);
            }
            self.limit(node.get("rate_limit"));
            self.descriptors(node.get("descriptors"), &path);
        }
    }

    fn limit(&mut self, limit: &DocNode) {
        if !limit.is_map() {
            return;
        }
        let unit = limit.get("unit").text().unwrap_or_default();
        let is_unit = UNITS.contains(&&*unit.to_ascii_lowercase());
        let place = if limit.get("unit").is_present() { limit.get("unit") } else { limit };
        let text = format!("unit: {unit}");
        match limit.get("unlimited").is_true() {
            true if is_unit => self.refuse(place, &text, "a limit that is unlimited has no unit"),
            false if !is_unit => {
                self.refuse(place, &text, format!("the unit is one of {}", UNITS.join(", ")));
            }
            _ => {}
        }
        let name = limit.get("name").text().unwrap_or_default();
        for replaced in limit.get("replaces").items() {
            match replaced.get("name").text().unwrap_or_default() {
                "" => self.refuse(replaced, "replaces", "an entry names no limit"),
                other if other == name => {
                    self.refuse(replaced, &format!("replaces: {name}"), "it is the limit itself");
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::documents;
    use crate::source::SourceFile;

    fn notes(files: &[&str]) -> Vec<String> {
        let files: Vec<SourceFile<'_>> =
            files.iter().map(|text| SourceFile { name: "f", text, directory: Path::new("") }).collect();
        let roots = documents(&files, |_| false).unwrap();
        refusals(&roots).iter().map(ToString::to_string).collect()
    }

    /// Each of the checks of the reference that a file in YAML can fail.
    #[test]
    fn each_refusal_is_named() {
        let limit = |rest: &str| format!("domain: d\ndescriptors:\n- {{ key: a, {rest} }}\n");
        let rate = "rate_limit: { unit: day, requests_per_unit: 1 }";
        for (file, text, reason) in [
            (limit("rate_limits: {}"), "rate_limits", "it knows no key `rate_limits`"),
            (limit("1: 2"), "1: 2", "it knows no key `1`"),
            (limit("rate_limit: { unit: day, burst: 1 }"), "burst: 1", "it knows no key `burst`"),
            ("domain: d\ndescriptors: [a]\n".to_owned(), "a", "a list has something other than maps"),
            ("domain: d\ndescriptors: a\n".to_owned(), "descriptors: a", "it is no list"),
            ("domain: d\ndescriptors: [{ value: b }]\n".to_owned(), "key", "a descriptor has no key"),
            ("domain: d\ndescriptors: [{ key: '' }]\n".to_owned(), "key", "a descriptor has no key"),
            (
                "domain: d\ndescriptors: [{ key: a, value: b }, { key: a_b }]\n".to_owned(),
                "a_b",
                "another descriptor has the same composite key, `a_b`",
            ),
            (limit("rate_limit: 5"), "rate_limit: 5", "it is no map"),
            (
                limit("rate_limit: { unit: fortnight }"),
                "unit: fortnight",
                "the unit is one of second, minute",
            ),
            (limit("rate_limit: { unit: unknown }"), "unit: unknown", "the unit is one of second, minute"),
            (limit("rate_limit: { requests_per_unit: 1 }"), "unit:", "the unit is one of second, minute"),
            (limit("rate_limit: { unlimited: true, unit: DAY }"), "unit: DAY", "unlimited has no unit"),
            (
                limit("rate_limit: { unit: day, requests_per_unit: -1 }"),
                "requests_per_unit: -1",
                "it is no whole number",
            ),
            (
                limit("rate_limit: { unit: day, requests_per_unit: 4294967296 }"),
                "requests_per_unit: 4294967296",
                "it is no whole number",
            ),
            (limit(&format!("{rate}, shadow_mode: maybe")), "shadow_mode: maybe", "neither true nor false"),
            (limit("rate_limit: { unit: day, replaces: [{ name: '' }] }"), "replaces", "names no limit"),
            (
                limit("rate_limit: { unit: day, name: x, replaces: [{ name: x }] }"),
                "replaces: x",
                "it is the limit itself",
            ),
            (limit("value: b, share_threshold: true"), "share_threshold: true", "nothing to share"),
        ] {
            let found = notes(&[&file]);
            let [note] = &found[..] else { panic!("{file}: {found:?}") };
            assert!(note.contains(&format!("`{text}")) && note.contains(reason), "{file}: {note}");
            assert!(note.contains("the rate-limit service does not start with this file"), "{note}");
        }
    }

    #[test]
    fn a_domain_is_in_one_file() {
        let file = "domain: d\ndescriptors: [{ key: a }]\n";
        let found = notes(&[file, "domain: e\ndescriptors: [{ key: a }]\n", file]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("another file has this domain") && found[1].contains("the same composite key")
        );
    }

    #[test]
    fn files_with_which_the_service_starts_have_no_notes() {
        for file in [
            "domain: d\n",
            "domain: d\ndescriptors:\n",
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: { unlimited: true }\n",
            "domain: d\ndescriptors:\n- key: a\n  value: b*\n  share_threshold: on\n  metadata: { any: [1, x] }\n",
            "domain: d\ndescriptors:\n- key: a\n  quota_mode: true\n  rate_limit: { unit: Week, requests_per_unit: 0 }\n\
             - key: a\n  value: b\n  descriptors:\n  - key: a\n",
            "apiVersion: v1\nkind: ConfigMap\n",
        ] {
            assert_eq!(notes(&[file]), [] as [String; 0], "{file}");
        }
    }
}
