//! JSON Pointers (RFC 6901), and the values to which they lead in a text that is not kept.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize as _, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::canonical::fold;
use crate::http1::is_digits;

/// The most segments of a pointer: far fewer than the levels that the parser reads.
const MAX_SEGMENTS: usize = 32;

/// A pointer that leads to a member of an object or an element of an array, such as `/user/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer(Box<str>);

/// Whether the name of a member is the one that is sought.
struct IsNamed<'p>(&'p str);

/// Collects the values at the end of a path.
struct Collect<'p, 'v> {
    path: &'p [String],
    /// The text of each value; empty for one that is no string, number or boolean.
    values: &'v mut Vec<String>,
}

impl JsonPointer {
    /// Parses a pointer; none if it is not valid, or leads to the whole text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let has_valid_escapes =
            text.split('~').skip(1).all(|after| after.starts_with('0') || after.starts_with('1'));
        let is_valid = text.starts_with('/') && has_valid_escapes && text.split('/').count() <= MAX_SEGMENTS;
        is_valid.then(|| Self(text.into()))
    }

    /// The values to which the pointer leads in a JSON text: several if a name is repeated. The text of each is returned,
    /// an empty one for a value that is no string, number or boolean. Names are compared without case, as Go and .NET do, and
    /// up to a zero byte, at which a name ends in C.
    pub fn values(&self, json: &str) -> Result<Vec<String>, serde_json::Error> {
        let path: Vec<String> = self.segments().map(|segment| fold(&segment).into_owned()).collect();
        let mut values = Vec::new();
        let mut parser = serde_json::Deserializer::from_str(json);
        Collect { path: &path, values: &mut values }.deserialize(&mut parser)?;
        parser.end()?;
        Ok(values)
    }

    /// The names on the path, from the outermost object on.
    pub(super) fn segments(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~"))
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        let name = Cow::<str>::deserialize(name)?;
        Ok(fold(name.split('\0').next().unwrap_or(&name)) == self.0)
    }
}

impl Collect<'_, '_> {
    fn add(self, text: impl fmt::Display) {
        if self.path.is_empty() {
            self.values.push(text.to_string());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Collect<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.add(value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.add(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.add(value);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        // The sum is 0 for -0. `100.0` is written as 100, so that each spelling of a number has one text.
        self.add(value + 0.0);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.add(value);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.add("");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.path.split_first() else {
            self.add("");
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let wanted = array_index(first);
        for index in 0_usize.. {
            let next = if wanted == Some(index) {
                elements.next_element_seed(Collect { path: rest, values: &mut *self.values })?
            } else {
                elements.next_element::<IgnoredAny>()?.map(|_| ())
            };
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.path.split_first() else {
            self.add("");
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while let Some(is_named) = members.next_key_seed(IsNamed(first))? {
            if is_named {
                members.next_value_seed(Collect { path: rest, values: &mut *self.values })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The index that a segment names (RFC 6901 §4).
fn array_index(segment: &str) -> Option<usize> {
    let is_valid = is_digits(segment.as_bytes()) && (segment == "0" || !segment.starts_with('0'));
    segment.parse().ok().filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pointer: &str, json: &str) -> Option<Vec<String>> {
        JsonPointer::parse(pointer).unwrap().values(json).ok()
    }

    #[test]
    fn pointers_lead_to_members_and_elements() {
        for (pointer, json, found) in [
            ("/user/name", r#"{"a":[{"name":1}],"user":{"id":7,"name":"eve"},"name":"x"}"#, &["eve"][..]),
            ("/a~1b~0c", r#"{"a/b~c":"eve"}"#, &["eve"]),
            ("/~01", r#"{"~1":"eve"}"#, &["eve"]),
            ("/", r#"{"":"eve"}"#, &["eve"]),
            ("/1/x", r#"[{"x":"a"},{"x":"b"},{"x":"c"}]"#, &["b"]),
            ("/01", r#"["a","b"]"#, &[]),
            ("/-", r#"["a","b"]"#, &[]),
            ("/user", r#"{"us\u0065r":"\u00e9\ud83d\ude00"}"#, &["é😀"]),
            ("/user/name", r#"{"user":"eve"}"#, &[]),
            ("/user", "[]", &[]),
            ("/user", "7", &[]),
        ] {
            assert_eq!(values(pointer, json).unwrap(), found, "{pointer} in {json}");
        }
    }

    #[test]
    fn every_repetition_of_a_name_is_found_whatever_its_case() {
        for (json, found) in [
            (r#"{"user":"a","user":"b"}"#, &["a", "b"][..]),
            (r#"{"USER":"a","u\u017fer":"b","user\u0000x":"c"}"#, &["a", "b", "c"]),
            (r#"{"user":"a","user":["b"],"user":{"user":"c"},"user":null}"#, &["a", "", "", ""]),
        ] {
            assert_eq!(values("/user", json).unwrap(), found, "{json}");
        }
        assert_eq!(values("/u/n", r#"{"u":{"n":"a"},"U":{"N":"b"},"u":1}"#).unwrap(), ["a", "b"]);
    }

    #[test]
    fn each_spelling_of_a_number_has_one_text() {
        for (spellings, text) in [
            (&["100", "100.0", "1e2", "1.00E+2", "1000e-1"][..], "100"),
            (&["0", "-0", "-0.0", "0e9"], "0"),
            (&["-7", "-7.0"], "-7"),
            (&["0.5", "5e-1"], "0.5"),
            (&["18446744073709551615"], "18446744073709551615"),
            (&["true"], "true"),
        ] {
            for spelling in spellings {
                assert_eq!(values("/n", &format!("{{\"n\":{spelling}}}")).unwrap(), [text], "{spelling}");
            }
        }
    }

    #[test]
    fn malformed_texts_are_errors() {
        let (deep, deeper) = ("[".repeat(50_000), "{\"a\":".repeat(50_000));
        for json in [
            "",
            " ",
            "{",
            "{\"a\":1",
            "{\"a\":1}}",
            "{\"a\":1} x",
            "{'a':1}",
            "{\"a\":1,}",
            "{\"a\":NaN}",
            "{\"a\":01}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\u{1}\"}",
            "// x\n{}",
            &deep,
            &deeper,
        ] {
            assert_eq!(values("/a/a/a", json), None, "{}", json.get(..40).unwrap_or(json));
        }
    }

    #[test]
    fn pointers_are_valid_and_not_too_long() {
        for text in ["/", "/a/b", "/a~0b", "/é"] {
            assert_eq!(JsonPointer::parse(text).unwrap().to_string(), text);
        }
        let long = "/a".repeat(MAX_SEGMENTS);
        for text in ["", "a", "a/b", "/a~", "/a~2", "/~~0", &long] {
            assert_eq!(JsonPointer::parse(text), None, "{text}");
        }
    }
}
