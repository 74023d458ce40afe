//! Sets of header names.

/// A set of header names and prefixes, compared without regard to case and with `_` equal to `-`: a server that reads
/// headers as variables, as CGI does, can't distinguish `X_Real_IP` from `X-Real-IP` (RFC 3875 §4.1.18).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// In lower case, with `-`.
    names: Vec<Box<str>>,
    /// The entries that end in `*`, without it.
    prefixes: Vec<Box<str>>,
    /// A bit for the first byte of each entry modulo 64, which excludes most names without a comparison.
    first_bytes: u64,
    /// A bit for first byte and length of each of `names`, which excludes most of the others.
    shapes: u64,
}

impl HeaderNames {
    /// A set with these entries; one that ends in `*` is a prefix.
    #[must_use]
    pub fn new<'e>(entries: impl IntoIterator<Item = &'e str>) -> Self {
        let mut set = Self::default();
        set.extend(entries);
        set
    }

    /// Adds entries, as [`Self::new`] takes them.
    pub fn extend<'e>(&mut self, entries: impl IntoIterator<Item = &'e str>) {
        for entry in entries {
            let entry = entry.to_ascii_lowercase().replace('_', "-");
            self.first_bytes |= entry.bytes().next().map_or(0, bit);
            if let Some(prefix) = entry.strip_suffix('*') {
                self.prefixes.push(prefix.into());
            } else {
                self.shapes |= entry.bytes().next().map_or(0, |first| shape(first, entry.len()));
                self.names.push(entry.into());
            }
        }
    }

    /// Whether a name, which is in lower case, is in the set.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let Some(first) = name.first().map(|first| fold(*first)) else { return false };
        if self.first_bytes & bit(first) == 0 {
            return false;
        }
        let is_same = |entry: &str, name: &[u8]| entry.bytes().eq(name.iter().map(|byte| fold(*byte)));
        let has_name = || self.names.iter().any(|entry| entry.len() == name.len() && is_same(entry, name));
        self.shapes & shape(first, name.len()) != 0 && has_name()
            || self
                .prefixes
                .iter()
                .any(|prefix| name.get(..prefix.len()).is_some_and(|start| is_same(prefix, start)))
    }
}

fn shape(first: u8, length: usize) -> u64 {
    bit(first.wrapping_mul(5).wrapping_add(length.to_le_bytes()[0]))
}

fn bit(byte: u8) -> u64 {
    1 << (byte & 63)
}

fn fold(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_with_hyphens_and_underscores() {
        let set = HeaderNames::new(["X-Real-IP", "x_auth_*", "_odd"]);
        for name in
            ["x-real-ip", "x_real_ip", "x-real_ip", "x-auth-", "x_auth_name", "x-auth-a_b", "-odd", "_odd"]
        {
            assert!(set.contains(name), "{name}");
        }
        for name in ["x-real-i", "x-real-ipp", "x-auth", "x-author", "real-ip", "odd", "host", ""] {
            assert!(!set.contains(name), "{name}");
        }
        assert!(!HeaderNames::default().contains("x-real-ip"));
    }
}
