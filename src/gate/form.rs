//! Fields of forms (application/x-www-form-urlencoded).

use super::canonical::fold;
use super::query::{decode, decoded_name};

/// The decoded values of a field, in their order; none if the form does not have the field.
///
/// Names that any framework reads as this one are its name: ASP.NET ignores case, PHP removes leading blanks, cuts names at a
/// zero byte and reads blanks, dots and brackets that are not closed as underscores, PHP, Rails and Express read `name[]` as
/// an array, and Rack before 3 reads `[name]` as `name`.
///
/// # Errors
/// A value that is not UTF-8.
pub(super) fn values(form: &str, name: &str) -> Result<Vec<String>, std::string::FromUtf8Error> {
    named(form, name).map(String::from_utf8).collect()
}

/// The same for the query of the request, where the server may read a field of the form. A value that is not UTF-8 is one
/// that differs from every value of the form.
pub(super) fn values_in_query(query: &str, name: &str) -> Vec<String> {
    named(query, name).map(|value| String::from_utf8_lossy(&value).into_owned()).collect()
}

/// The decoded values that have this name.
fn named(pairs: &str, name: &str) -> impl Iterator<Item = Vec<u8>> {
    let wanted = normal_name(name.as_bytes());
    let is_named = move |pair: &&str| {
        let found = normal_name(&decoded_name(pair));
        let rest = found.strip_prefix(&*wanted);
        !pair.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', ']']))
    };
    let value = |pair: &str| {
        let mut value = Vec::new();
        decode(pair.split_once('=').map_or("", |(_, value)| value), &mut value);
        value
    };
    pairs.split('&').filter(is_named).map(value)
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
        assert_eq!(values_in_query("a=b&+user.name=e+ve&user_name=%ff", "user_name"), ["e ve", "\u{fffd}"]);
    }
}
