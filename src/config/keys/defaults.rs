//! The defaults of all keys, parsed once.

use std::collections::HashMap;
use std::sync::LazyLock;

use toml::Spanned;
use toml::de::DeValue;

use super::TOP;
use super::key::Keys;

type Value = Spanned<DeValue<'static>>;

static VALUES: LazyLock<HashMap<&'static str, Value>> = LazyLock::new(|| {
    let mut values = HashMap::new();
    add(&TOP, &mut values);
    values
});

/// The value that a default has; `None` if it is not valid TOML, which a test excludes.
pub fn default_value(literal: &'static str) -> Option<&'static Value> {
    VALUES.get(literal)
}

fn add(keys: &'static Keys, values: &mut HashMap<&'static str, Value>) {
    for key in keys.all {
        if let Some(literal) = key.default.literal()
            && let Ok(value) = DeValue::parse(literal)
        {
            values.insert(literal, value);
        }
        for (keys, _) in key.kind.tables() {
            add(keys, values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &'static Keys) {
        for key in keys.all {
            if let Some(literal) = key.default.literal() {
                assert!(default_value(literal).is_some(), "{}: {literal} is no TOML", key.name);
            }
            let same = keys.all.iter().filter(|other| other.name == key.name).count();
            assert_eq!(same, 1, "{} is listed twice", key.name);
            key.kind.tables().iter().for_each(|(keys, _)| check(keys));
        }
    }

    #[test]
    fn defaults_are_toml_and_names_are_unique() {
        check(&TOP);
    }
}
