//! The parts of a cost that the response decides: `reserve` and `settle`.

use http::header::HeaderName;

use super::cost_keys::Units;
use crate::config::item::Item;
use crate::config::keys::kinds::ReadKind as _;
use crate::gate::{CostSource, JsonPointer, KeyPart, ReserveTerm};
use crate::suggest::nearest;

const RESERVE_FORM: &str = "write a number, \"header:NAME\" or \"body:/POINTER\", such as \"body:/max_tokens\"; an array of these is their sum";
const SETTLE_FORM: &str = "write \"header:NAME\", \"trailer:NAME\", \"json:/POINTER\", \"response_bytes\", \"request_bytes\" or \"seconds\"";
/// Fields that frame a message: they can't be removed, and say nothing about its cost.
const FRAMING: [&str; 6] = ["content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"];
/// Sources without a name.
const MEASURED: [(&str, CostSource); 3] = [
    ("response_bytes", CostSource::ResponseBytes),
    ("request_bytes", CostSource::RequestBytes),
    ("seconds", CostSource::Seconds),
];

/// Reads `reserve`.
pub(super) fn terms(item: Item<'_>) -> Option<Vec<ReserveTerm>> {
    if !item.is_array() {
        return Some(vec![term(item)?]);
    }
    let terms = item.list_of("", term)?;
    if terms.is_empty() {
        return item.reject(item.error("the sum is empty").help(RESERVE_FORM));
    }
    Some(terms)
}

fn term(item: Item<'_>) -> Option<ReserveTerm> {
    if item.is_integer() {
        return Units::read(item).map(ReserveTerm::Units);
    }
    let text = item.string_like("a number, a string or an array of them", RESERVE_FORM)?;
    let near = text.value.strip_prefix("body:").filter(|rest| !rest.starts_with('/') && !text.from_env);
    let help = match near.filter(|rest| !rest.is_empty()) {
        Some(field) => format!("write a JSON Pointer (RFC 6901): \"body:/{}\"", field.replace('.', "/")),
        None => RESERVE_FORM.to_owned(),
    };
    text.parsed("something to reserve", &help, |text| match text.split_once(':')? {
        ("header", name) => header(name).map(ReserveTerm::Header),
        ("body", pointer) => JsonPointer::parse(pointer).map(ReserveTerm::Body),
        _ => None,
    })
}

fn header(name: &str) -> Option<HeaderName> {
    match KeyPart::parse(&format!("header:{name}")) {
        Some(KeyPart::Header(name)) => Some(name),
        _ => None,
    }
}

/// Reads `settle`.
pub(super) fn source(item: Item<'_>) -> Option<CostSource> {
    let text = item.string_like("a string", SETTLE_FORM)?;
    let help = source_cure(&text.value).filter(|_| !text.from_env).unwrap_or_else(|| SETTLE_FORM.to_owned());
    let source = text.parsed("the cost of a response", &help, parse_source)?;
    if let CostSource::Header(name) | CostSource::Trailer(name) = &source
        && FRAMING.contains(&name.as_str())
    {
        let problem =
            text.error(format!("`{name}` is a field of the connection, and not the cost of a response"));
        return text
            .reject(problem.help("to count the bytes of the body, write settle = \"response_bytes\""));
    }
    Some(source)
}

fn parse_source(text: &str) -> Option<CostSource> {
    if let Some((_, source)) = MEASURED.into_iter().find(|(word, _)| *word == text) {
        return Some(source);
    }
    match text.split_once(':')? {
        ("header", name) => header(name).map(CostSource::Header),
        ("trailer", name) => header(name).map(CostSource::Trailer),
        ("json", pointer) => JsonPointer::parse(pointer).map(|_| CostSource::Json(pointer.into())),
        _ => None,
    }
}

/// How to write a text that is no source.
fn source_cure(text: &str) -> Option<String> {
    let json =
        |pointer: &str| format!("write a JSON Pointer (RFC 6901): \"json:/{}\"", pointer.replace('.', "/"));
    match text.split_once(':') {
        Some(("json" | "body", pointer)) if !pointer.is_empty() => {
            Some(json(pointer.trim_start_matches('/')))
        }
        Some(_) => None,
        None if text.starts_with('/') => Some(json(text.trim_start_matches('/'))),
        None if text.starts_with("x-") => Some(format!("write \"header:{text}\"")),
        None => nearest(text, MEASURED.iter().map(|(word, _)| *word))
            .map(|near| format!("did you mean \"{near}\"?")),
    }
}
