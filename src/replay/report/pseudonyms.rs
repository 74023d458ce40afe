//! Pseudonyms of keys.

use std::collections::HashMap;

/// Pseudonyms: `key 1`, `key 2` and so on, in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct Pseudonyms(HashMap<String, String>);

impl Pseudonyms {
    /// Replaces a name.
    pub fn replace(&mut self, name: &mut String) {
        let next = self.0.len() + 1;
        let pseudonym = self.0.entry(name.clone()).or_insert_with(|| format!("key {next}"));
        name.clone_from(pseudonym);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_pseudonym() {
        let mut pseudonyms = Pseudonyms::default();
        let mut names = ["192.0.2.1", "192.0.2.2", "192.0.2.1"].map(str::to_owned);
        for name in &mut names {
            pseudonyms.replace(name);
        }
        assert_eq!(names, ["key 1", "key 2", "key 1"]);
    }
}
