//! Fields of forms (application/x-www-form-urlencoded).

use super::canonical::fold;
use super::query::decode;

/// The decoded values of a field, in their order; none if the form does not have the field.
///
/// Names that any framework reads as this one are its name: ASP.NET ignores case, PHP removes leading blanks, cuts names at a
/// zero byte and reads blanks and dots as underscores, and PHP, Rails and Express read `name[]` as an array.
///
/// # Errors
/// A value that is not UTF-8.
pub(super) fn values(form: &str, name: &str) -> Result<Vec<String>, std::string::FromUtf8Error> {
    let wanted = normal_name(name.as_bytes());
    let is_named = |pair: &str| {
        let mut found = Vec::new();
        decode(pair.split_once('=').map_or(pair, |(name, _)| name), &mut found);
        let found = normal_name(&found);
        found.strip_prefix(&*wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    };
    let value = |pair: &str| {
        let mut value = Vec::new();
        decode(pair.split_once('=').map_or("", |(_, value)| value), &mut value);
        String::from_utf8(value)
    };
    form.split('&').filter(|pair| !pair.is_empty() && is_named(pair)).map(value).collect()
}

/// A name in the form in which names are compared.
fn normal_name(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let text = text.trim_start_matches(|character: char| character.is_ascii_whitespace());
    let text = text.split('\0').next().unwrap_or(text);
    fold(text).replace([' ', '.'], "_")
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
        assert!(values("username=%ff", "username").is_err());
        assert!(values("username=eve&%ff=%ff", "username").is_ok());
    }
}
