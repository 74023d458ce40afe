//! The query of a request, decoded like a form: `+` is a space.

use std::cell::OnceCell;
use std::ops::Range;

/// The most parameters that a query may have where a route's condition or a key reads it. Django, PHP and Express read no
/// more than 1,000 either, so servers ignore later ones as well.
pub const MAX_PARAMETERS: usize = 1_000;

/// The query of a request, decoded once, when a condition or a key first reads it.
#[derive(Debug)]
pub struct Query<'a> {
    raw: &'a str,
    /// The inner option is none if there are more than [`MAX_PARAMETERS`]. Boxed, so that a query that is not read is
    /// cheap to move.
    decoded: OnceCell<Option<Box<Parameters>>>,
}

/// Decoded names and values, concatenated.
#[derive(Debug, Default)]
struct Parameters {
    bytes: Vec<u8>,
    /// Sorted by name and value, without duplicates.
    pairs: Vec<ParameterRange>,
}

/// The ranges of a name and its value.
#[derive(Clone, Debug)]
struct ParameterRange {
    name: Range<usize>,
    value: Range<usize>,
}

impl<'a> Query<'a> {
    /// The query of a target; a target without one has an empty query.
    #[must_use]
    pub fn new(raw: Option<&'a str>) -> Self {
        Self { raw: raw.unwrap_or(""), decoded: OnceCell::new() }
    }

    /// The values of a parameter, sorted and without duplicates; none if the query has too many parameters.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let decoded = self.decoded.get_or_init(|| Parameters::decode(self.raw).map(Box::new)).as_ref();
        decoded.into_iter().flat_map(move |parameters| parameters.values(name.as_bytes()))
    }

    /// Whether a condition or a key has read the query, and it has more than [`MAX_PARAMETERS`].
    #[must_use]
    pub fn has_too_many_parameters(&self) -> bool {
        matches!(self.decoded.get(), Some(None))
    }
}

impl Parameters {
    fn decode(raw: &str) -> Option<Self> {
        let mut all = Self::default();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            if all.pairs.len() == MAX_PARAMETERS {
                return None;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (all.push(name), all.push(value));
            all.pairs.push(ParameterRange { name, value });
        }
        let Self { bytes, pairs } = &mut all;
        let decoded = |pair: &ParameterRange| (&bytes[pair.name.clone()], &bytes[pair.value.clone()]);
        pairs.sort_unstable_by(|one, other| decoded(one).cmp(&decoded(other)));
        pairs.dedup_by(|one, other| decoded(one) == decoded(other));
        Some(all)
    }

    fn push(&mut self, text: &str) -> Range<usize> {
        let start = self.bytes.len();
        decode(text, &mut self.bytes);
        start..self.bytes.len()
    }

    fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let name_of = |pair: &ParameterRange| &self.bytes[pair.name.clone()];
        let first = self.pairs.partition_point(|pair| name_of(pair) < name);
        let count = self.pairs[first..].partition_point(|pair| name_of(pair) == name);
        self.pairs[first..first + count].iter().map(|pair| &self.bytes[pair.value.clone()])
    }
}

/// The decoded name of a parameter, which is written `NAME=VALUE` or `NAME`.
pub(super) fn decoded_name(pair: &str) -> Vec<u8> {
    let mut name = Vec::new();
    decode(pair.split_once('=').map_or(pair, |(name, _)| name), &mut name);
    name
}

/// Decodes a name or a value, and adds it to `out`.
pub(super) fn decode(text: &str, out: &mut Vec<u8>) {
    // `+` is decoded before the escapes, because `%2B` is a plus sign.
    for (number, part) in text.split('+').enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend(percent_encoding::percent_decode_str(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(query: &str, name: &str) -> Vec<String> {
        let query = Query::new(Some(query));
        query.values(name).map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
    }

    #[test]
    fn values_are_decoded_and_deduplicated() {
        assert_eq!(values("a=1&%6Bey=x%2fy+z", "key"), ["x/y z"]);
        assert_eq!(values("a=1&key", "key"), [""]);
        assert_eq!(values("", "key"), [""; 0]);
        assert_eq!(values("key=a&key=%61&k=b", "key"), ["a"]);
        assert_eq!(values("key=b&x=1&key=a&key=b&&", "key"), ["a", "b"]);
        assert_eq!(values("key=%2B&ke=1", "key"), ["+"]);
    }

    #[test]
    fn a_query_that_is_not_read_is_not_decoded() {
        let raw = "a=1&".repeat(MAX_PARAMETERS + 1);
        let query = Query::new(Some(&raw));
        assert!(query.decoded.get().is_none() && !query.has_too_many_parameters());
        assert!(query.values("a").next().is_none() && query.has_too_many_parameters());
        let fits = Query::new(Some(&raw[4..]));
        assert!(fits.values("a").eq([b"1"]) && !fits.has_too_many_parameters());
        assert_eq!(fits.values("a").count(), 1, "equal parameters are looked up once");
    }
}
