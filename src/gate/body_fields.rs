//! Fields of a request's body that limits count by.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::CONTENT_ENCODING;

use super::canonical::field_value;
use super::form;
use super::json_pointer::JsonPointer;
use super::request_usage::RequestUsage;
use crate::http1::names::CONTENT_TYPE;
use crate::http1::{FieldName, RequestHead};

/// The longest body that is read before the limits are checked, in bytes.
pub const MAX_READ_BODY: usize = 64 * 1024;

/// The parameters of media types that may be beside a charset: those of versions, profiles (RFC 6906), JSON:API and `OData`.
const HARMLESS_PARAMETERS: [&str; 7] =
    ["version", "v", "profile", "ext", "odata.metadata", "odata.streaming", "ieee754compatible"];

/// A field of a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyField {
    /// `body:/POINTER`: a value in a JSON text.
    Json(JsonPointer),
    /// `form:NAME`: a field of a form.
    Form(Box<str>),
}

/// The fields of a body that the limits of a route name, and what it says about costs.
#[derive(Debug)]
pub struct BodyFields {
    fields: Vec<(BodyField, Result<Vec<String>, NoField>)>,
    usage: Option<Arc<RequestUsage>>,
}

/// Why a body has no value for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoField {
    /// No body.
    #[error("the request has no body")]
    NoBody,
    /// Another media type, none, several, or one with a parameter after which a server may read another text.
    #[error("the Content-Type is another one")]
    ContentType,
    /// A compressed body.
    #[error("the body has a Content-Encoding")]
    ContentEncoding,
    /// More than [`MAX_READ_BODY`].
    #[error("the body is longer than {} KiB", MAX_READ_BODY / 1024)]
    TooLong,
    /// Other bodies of the connection use too much memory.
    #[error("too many bodies of this connection are being read")]
    NoMemory,
    /// Not valid JSON, or not UTF-8.
    #[error("the body is malformed")]
    Malformed,
    /// The body has no such field.
    #[error("the body does not have it")]
    Absent,
    /// Empty, null, an object or an array.
    #[error("it is empty, null, an object or an array")]
    NoText,
}

/// The format as which a body is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Form,
}

impl BodyField {
    fn format(&self) -> BodyFormat {
        match self {
            Self::Json(_) => BodyFormat::Json,
            Self::Form(_) => BodyFormat::Form,
        }
    }

    /// The distinct values of the field, in their canonical form. If the body has the field, those of the query are among them,
    /// because Java servlets and Rails read the query first.
    fn values(&self, text: &str, query: &str) -> Result<Vec<String>, NoField> {
        let found = match self {
            // RFC 8259 §8.1: a parser may ignore a byte order mark.
            Self::Json(pointer) => pointer.values(text.trim_start_matches('\u{feff}')).ok(),
            Self::Form(name) => form::values(text, name).ok(),
        };
        let mut found = found.ok_or(NoField::Malformed)?;
        if !found.is_empty() {
            let name = match self {
                Self::Json(pointer) => pointer.segments().next().map(Cow::Owned),
                Self::Form(name) => Some(Cow::Borrowed(&**name)),
            };
            found.extend(name.into_iter().flat_map(|name| form::values_in_query(query, &name)));
        }
        let mut values: Vec<String> = found.iter().map(|value| field_value(value).into_owned()).collect();
        values.sort_unstable();
        values.dedup();
        match &*values {
            [] => Err(NoField::Absent),
            [only] if only.is_empty() => Err(NoField::NoText),
            _ => Ok(values),
        }
    }
}

impl fmt::Display for BodyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(pointer) => write!(f, "body:{pointer}"),
            Self::Form(name) => write!(f, "form:{name}"),
        }
    }
}

impl BodyFields {
    /// No fields.
    pub const NONE: Self = Self { fields: Vec::new(), usage: None };

    /// Whether the body of a request can have one of these fields, by its head.
    pub fn check_head(fields: &[BodyField], head: &RequestHead) -> Result<(), NoField> {
        let format = format(head)?;
        if fields.iter().any(|field| field.format() == format) { Ok(()) } else { Err(NoField::ContentType) }
    }

    /// Finds these fields in the body of a request, if it could be read.
    #[must_use]
    pub fn find(fields: &[BodyField], head: &RequestHead, body: Result<&[u8], NoField>) -> Self {
        let body = body.and_then(|body| if body.is_empty() { Err(NoField::NoBody) } else { Ok(body) });
        let text = body.and_then(|body| std::str::from_utf8(body).map_err(|_| NoField::Malformed));
        let format = if let Err(NoField::NoBody) = body { Err(NoField::NoBody) } else { format(head) };
        let value = |field: &BodyField| {
            let query = head.uri.query().unwrap_or("");
            if format? == field.format() { field.values(text?, query) } else { Err(NoField::ContentType) }
        };
        Self { fields: fields.iter().map(|field| (field.clone(), value(field))).collect(), usage: None }
    }

    /// The same with what the request says about costs that responses settle.
    #[must_use]
    pub fn with_usage(self, usage: Option<RequestUsage>) -> Self {
        Self { usage: usage.map(Arc::new), ..self }
    }

    /// What the request says about costs that responses settle, where the limits of its route read that.
    #[must_use]
    pub fn usage(&self) -> Option<&Arc<RequestUsage>> {
        self.usage.as_ref()
    }

    /// The distinct values of a field, in their canonical form.
    pub fn values(&self, field: &BodyField) -> Result<&[String], NoField> {
        let found = self.fields.iter().find(|(known, _)| known == field);
        found.map_or(Err(NoField::Absent), |(_, values)| values.as_deref().map_err(|why| *why))
    }
}

/// Whether the body of a request is JSON that can be read, by its head.
pub(super) fn is_json(head: &RequestHead) -> bool {
    format(head) == Ok(BodyFormat::Json)
}

/// The format as which the body of a request is parsed, by its head.
fn format(head: &RequestHead) -> Result<BodyFormat, NoField> {
    let codings = head.fields.get_all(FieldName::from(&CONTENT_ENCODING));
    if codings.flat_map(|value| value.split(|byte| *byte == b',')).any(|coding| !is_identity(coding)) {
        return Err(NoField::ContentEncoding);
    }
    let mut types = head.fields.get_all(CONTENT_TYPE);
    let (Some(media_type), None) = (types.next(), types.next()) else { return Err(NoField::ContentType) };
    let media_type = String::from_utf8_lossy(media_type).to_ascii_lowercase();
    let (essence, parameters) = media_type.split_at(media_type.find(';').unwrap_or(media_type.len()));
    if !are_harmless(parameters) {
        return Err(NoField::ContentType);
    }
    match essence.trim() {
        // ASP.NET Core reads text/json, too.
        "application/json" | "text/json" => Ok(BodyFormat::Json),
        "application/x-www-form-urlencoded" => Ok(BodyFormat::Form),
        // Rack takes what is before a comma for the media type.
        essence if essence.ends_with("+json") && !essence.contains(|it| it != '/' && is_no_token(it)) => {
            Ok(BodyFormat::Json)
        }
        _ => Err(NoField::ContentType),
    }
}

fn is_identity(coding: &[u8]) -> bool {
    let coding = coding.trim_ascii();
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

/// Whether these parameters of a media type (RFC 9110 §5.6.6) leave the text in UTF-8, as every server reads them: only known
/// ones without any escapes, neither quoted pairs nor the `charset*` of RFC 2231.
fn are_harmless(mut parameters: &str) -> bool {
    let blanks = [' ', '\t'];
    while !parameters.is_empty() {
        let Some(parameter) = parameters.trim_start_matches(blanks).strip_prefix(';') else { return false };
        let parameter = parameter.trim_start_matches(blanks);
        // A semicolon may be the last character.
        let Some((name, value)) = parameter.split_once('=') else { return parameter.is_empty() };
        let (value, rest) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or(("\\", "")),
            None => value.split_at(value.find(is_no_token).unwrap_or(value.len())),
        };
        let is_harmless = match name {
            "charset" => matches!(value, "utf-8" | "utf8" | "us-ascii"),
            name => HARMLESS_PARAMETERS.contains(&name) && !value.contains(['"', '\\']),
        };
        if !is_harmless {
            return false;
        }
        parameters = rest;
    }
    true
}

/// Whether a character can't be in a token (RFC 9110 §5.6.2).
fn is_no_token(character: char) -> bool {
    !character.is_ascii_alphanumeric() && !"!#$%&'*+-.^_`|~".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    const FORM: &str = "application/x-www-form-urlencoded";

    fn head(media_types: &[&str]) -> RequestHead {
        let mut head = RequestHead::new(http::Method::POST, http::Uri::from_static("/"));
        for media_type in media_types {
            head.fields.push(CONTENT_TYPE, media_type.as_bytes());
        }
        head
    }

    fn found(head: &RequestHead, body: &str) -> [Result<Vec<String>, NoField>; 2] {
        let fields = [BodyField::Json(JsonPointer::parse("/user").unwrap()), BodyField::Form("user".into())];
        let found = BodyFields::find(&fields, head, Ok(body.as_bytes()));
        fields.map(|field| found.values(&field).map(<[String]>::to_vec))
    }

    #[test]
    fn a_body_is_parsed_by_its_content_type() {
        let other = || Err(NoField::ContentType);
        let one = |text: &str| Ok(vec![text.to_owned()]);
        for (media_types, body, expected) in [
            (&[JSON][..], r#"{"user":"Eve "}"#, [one("eve"), other()]),
            (&["Application/JSON ; Charset=\"UTF-8\""], r#"{"user":7}"#, [one("7"), other()]),
            (&["text/json"], r#"{"user":"eve"}"#, [one("eve"), other()]),
            (&["application/ld+json"], "\u{feff}{\"user\":true}", [one("true"), other()]),
            (&[FORM], "user=Eve+", [other(), one("eve")]),
            (&["application/x-www-form-urlencoded;charset=utf-8"], "user=%C3%84", [other(), one("a")]),
            (&["text/plain"], "user=eve", [other(), other()]),
            (&["application/x-www-form-urlencoded,x/a+json"], r#"{"user":"a&user=eve"}"#, [other(), other()]),
            (&["multipart/form-data; boundary=x"], "user=eve", [other(), other()]),
            (
                &["application/json; v=1 ;profile=\"a;charset=b\";"],
                r#"{"user":"eve"}"#,
                [one("eve"), other()],
            ),
            (&["application/json; charset=utf-16"], r#"{"user":"eve"}"#, [other(), other()]),
            (&[JSON, JSON], r#"{"user":"eve"}"#, [other(), other()]),
            (&[], r#"{"user":"eve"}"#, [other(), other()]),
        ] {
            assert_eq!(found(&head(media_types), body), expected, "{media_types:?}");
        }
    }

    #[test]
    fn a_missing_field_has_a_reason() {
        for (body, reason) in [
            ("", NoField::NoBody),
            ("{", NoField::Malformed),
            ("{}", NoField::Absent),
            (r#"{"user":null}"#, NoField::NoText),
            (r#"{"user":{"user":"eve"}}"#, NoField::NoText),
            (r#"{"user":["eve"]}"#, NoField::NoText),
            (r#"{"user":" "}"#, NoField::NoText),
        ] {
            assert_eq!(found(&head(&[JSON]), body)[0], Err(reason), "{body}");
        }
        let mut encoded = head(&[JSON]);
        encoded.fields.push(FieldName::from(&CONTENT_ENCODING), b"identity, gzip");
        assert_eq!(found(&encoded, r#"{"user":"eve"}"#)[0], Err(NoField::ContentEncoding));
        let fields = [BodyField::Form("user".into())];
        assert_eq!(BodyFields::check_head(&fields, &head(&[JSON])), Err(NoField::ContentType));
        assert_eq!(BodyFields::check_head(&fields, &head(&[FORM])), Ok(()));
        assert_eq!(
            BodyFields::find(&fields, &head(&[FORM]), Ok(b"user=\xff")).values(&fields[0]),
            Err(NoField::Malformed)
        );
    }

    #[test]
    fn form_fields_are_compared_with_the_query() {
        for (query, body, expected) in [
            ("user=adam", "user=eve", Ok(vec!["adam", "eve"])),
            ("+USER=adam", "user=eve", Ok(vec!["adam", "eve"])),
            ("user=%ff", "user=eve", Ok(vec!["eve", "\u{fffd}"])),
            ("user=adam", "user=", Ok(vec!["", "adam"])),
            ("user=Eve&users=x", "user=eve", Ok(vec!["eve"])),
            ("user=adam", "x=1", Err(NoField::Absent)),
        ] {
            let mut head = head(&[FORM]);
            head.uri = format!("/?{query}").parse().unwrap();
            let found = found(&head, body)[1].clone();
            let expected = expected.map(|values| values.into_iter().map(str::to_owned).collect());
            assert_eq!(found, expected, "{query} {body}");
        }
    }

    #[test]
    fn members_of_json_texts_are_compared_with_the_query() {
        for (pointer, query, body, expected) in [
            ("/user", "user=adam", r#"{"user":"eve"}"#, Ok(&["adam", "eve"][..])),
            ("/user", "x=1;%5Buser%5D=adam", r#"{"user":"eve"}"#, Ok(&["adam", "eve"])),
            ("/user", "User=Eve", r#"{"user":"eve"}"#, Ok(&["eve"])),
            ("/user/name", "user[name]=adam", r#"{"user":{"name":"eve"}}"#, Ok(&["adam", "eve"])),
            ("/user/name", "name=adam", r#"{"user":{"name":"eve"}}"#, Ok(&["eve"])),
            ("/a~1b", "a/b=adam", r#"{"a/b":"eve"}"#, Ok(&["adam", "eve"])),
            ("/user", "user=adam", "{}", Err(NoField::Absent)),
        ] {
            let mut head = head(&[JSON]);
            head.uri = format!("/?{query}").parse().unwrap();
            let field = BodyField::Json(JsonPointer::parse(pointer).unwrap());
            let found = BodyFields::find(std::slice::from_ref(&field), &head, Ok(body.as_bytes()));
            let expected = expected.map(|values| values.iter().map(|&value| value.to_owned()).collect());
            assert_eq!(found.values(&field).map(<[String]>::to_vec), expected, "{pointer} {query}");
        }
    }

    /// RFC 9110 §5.6.6.
    #[test]
    fn a_media_type_with_other_or_malformed_parameters_is_another_one() {
        for parameters in [
            "charset*=utf-7",
            "charset*=utf-8''utf-8",
            "charset*0=utf-7",
            "charset=utf-8; charset=utf-7",
            "charset =utf-8",
            "charset= utf-8",
            "charset",
            "charset=\"utf-8",
            "charset=\"utf-8\"x",
            "charset=utf-8 x",
            "charset='utf-8'",
            "version=1,text/plain",
            "version=\"1\\\";charset=utf-7;v=\"2\"",
            "version=1\"; charset=utf-7; v=\"",
            "x=1",
            "; charset=utf-8",
        ] {
            for media_type in [JSON, FORM] {
                let head = head(&[&format!("{media_type}; {parameters}")]);
                assert_eq!(found(&head, "user=eve"), [NoField::ContentType; 2].map(Err), "{parameters}");
            }
        }
    }

    #[test]
    fn repetitions_that_differ_are_all_found() {
        for (body, values) in [
            (r#"{"user":"eve","user":"Eve"}"#, &["eve"][..]),
            (r#"{"user":"eve","User":"adam"}"#, &["adam", "eve"]),
            (r#"{"user":"eve","user":["adam"]}"#, &["", "eve"]),
            (r#"{"user":1,"user":1.0}"#, &["1"]),
        ] {
            assert_eq!(found(&head(&[JSON]), body)[0].as_deref().unwrap(), values, "{body}");
        }
    }
}
