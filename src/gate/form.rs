//! Fields of forms (application/x-www-form-urlencoded).

use std::borrow::Cow;

use super::canonical::fold;
use super::query;

/// The decoded values of a field, in their order; none if the form does not have the field.
///
/// Names that any framework reads as this one are its name: ASP.NET ignores case, PHP removes leading blanks, cuts names at a
/// zero byte and reads blanks, dots and brackets that are not closed as underscores, PHP, Rails and Express read `name[]` as an
/// array, Rack before 3 reads `[name]` as `name`, and ASP.NET decodes `%u006e` as well. Rejects a value that is not UTF-8.
pub(super) fn values(form: &str, name: &str) -> Result<Vec<String>, std::string::FromUtf8Error> {
    named(form.split('&'), name).map(String::from_utf8).collect()
}

/// The values of a field in the query of the request, where the server may read a field of the body. Rack before 3 splits
/// queries at `;` too. A value that is not UTF-8 is one that differs from every value of the body.
pub(super) fn values_in_query(query: &str, name: &str) -> Vec<String> {
    let pairs = query.split('&').chain(query.split(['&', ';']));
    named(pairs, name).map(|value| String::from_utf8_lossy(&value).into_owned()).collect()
}

/// The decoded values of the pairs that have this name.
fn named<'p>(pairs: impl Iterator<Item = &'p str>, name: &str) -> impl Iterator<Item = Vec<u8>> {
    let wanted = normal_name(name.as_bytes());
    pairs.filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        let found = normal_name(&decoded(found));
        let rest = found.strip_prefix(&*wanted)?;
        (rest.is_empty() || rest.starts_with(['[', ']'])).then(|| decoded(value))
    })
}

fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    query::decode(&without_utf16_escapes(text), &mut bytes);
    bytes
}

/// The text with the characters of its escapes, `%u` and four hexadecimal digits, each of which is a unit of UTF-16.
fn without_utf16_escapes(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once("%u") else { return Cow::Borrowed(text) };
    let mut units: Vec<u16> = before.encode_utf16().collect();
    for part in rest.split("%u") {
        let digits = part.bytes().take(4).take_while(u8::is_ascii_hexdigit).count();
        let (digits, rest) = part.split_at(if digits == 4 { digits } else { 0 });
        match u16::from_str_radix(digits, 16) {
            // `%` and `+` have a meaning in forms.
            Ok(0x25) => units.extend("%25".encode_utf16()),
            Ok(0x2b) => units.extend("%2B".encode_utf16()),
            Ok(unit) => units.push(unit),
            Err(_) => units.extend("%u".encode_utf16()),
        }
        units.extend(rest.encode_utf16());
    }
    Cow::Owned(String::from_utf16_lossy(&units))
}

/// A name in the form in which names are compared.
fn normal_name(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let is_skipped = |character: char| character.is_ascii_whitespace() || matches!(character, '[' | ']');
    let text = text.trim_start_matches(is_skipped);
    let text = text.split('\0').next().unwrap_or(text);
    let name = fold(text).replace([' ', '.'], "_");
    match name.split_once('[') {
        Some((_, rest)) if !rest.contains(']') => name.replace('[', "_"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_under_every_spelling_of_their_names() {
        for (form, found) in [
            ("username=eve&password=x", &["eve"][..]),
            ("a=1&user%6Eame=e+v%65&&", &["e ve"]),
            ("username", &[""]),
            ("username=a&username=b", &["a", "b"]),
            (
                "username=a&Username=b&+username=c&username%00x=d&username[]=e&username[0]=f",
                &["a", "b", "c", "d", "e", "f"],
            ),
            ("user=a&usernames=b&xusername=c&password=username=d", &[]),
            ("", &[]),
        ] {
            assert_eq!(values(form, "username").unwrap(), found, "{form}");
        }
        assert_eq!(values("user_name=a&user.name=b&user+name=c", "user.name").unwrap(), ["a", "b", "c"]);
        assert_eq!(values("user[email]=a&user[name]=b", "user[email]").unwrap(), ["a"]);
        let unclosed = "user[name=a&user%5Bname=b&user]name=c&user[name]=d&user[na[me=e&[user_name]=f";
        assert_eq!(values(unclosed, "user_name").unwrap(), ["a", "b", "f"]);
        assert_eq!(values("a[b[c=a&a[b.c=b", "a_b_c").unwrap(), ["a", "b"]);
        assert_eq!(values("[]user=a&user]=b", "user").unwrap(), ["a", "b"]);
        assert!(values("username=%ff", "username").is_err());
        assert!(values("username=eve&%ff=%ff", "username").is_ok());
        let in_query = values_in_query("a=b&+user.name=e+ve&user_name=%ff", "user_name");
        assert_eq!(in_query, ["e ve", "\u{fffd}"].repeat(2));
        assert_eq!(values_in_query("x=1;user=eve;y", "user"), ["eve"]);
        assert_eq!(values_in_query("user=eve;y", "user"), ["eve;y", "eve"]);
    }
    #[test]
    fn utf16_escapes_are_decoded() {
        for (form, found) in [
            ("%u0075ser=%u0065v%65&us%u0065r[]=+%ud83d%ude00%u", &["eve", " 😀%u"][..]),
            ("user=%u002b%2b+%u002541&user%u0000x=%u00&u%ser=c", &["++ %41", "%u00"]),
            ("user=%u+123%uud800", &["%u 123%uud800"]),
        ] {
            assert_eq!(values(form, "user").unwrap(), found, "{form}");
        }
    }
}
