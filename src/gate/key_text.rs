//! Keys of requests as people read them, and as [`KeyResolver`](super::KeyResolver) parses them.

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};

use super::consumer_rules::CredentialSource;
use super::key_part::KeyPart;
use super::key_spec::KeySpec;
use super::subject::Subject;

/// The most bytes of a key's name; a longer one is of no use to a reader.
const MAX_NAME: usize = 512;

/// The values of all parts of a request's key, with bars between them; none if one is missing, ambiguous, a credential, or
/// not UTF-8.
pub(super) fn key_name(
    spec: &KeySpec,
    subject: &Subject<'_>,
    credential: Option<&CredentialSource>,
) -> Option<String> {
    let mut name = String::new();
    for (index, part) in spec.parts.iter().enumerate() {
        if index > 0 {
            name.push('|');
        }
        match part {
            KeyPart::Global => name.push_str("global"),
            _ if is_credential(part, credential) => return None,
            _ => {
                let value = part.value_or_recorded(subject).one()?;
                name.push_str(&str::from_utf8(&value).ok()?.replace('|', r"\|"));
            }
        }
    }
    (name.len() <= MAX_NAME).then_some(name)
}

fn is_credential(part: &KeyPart, credential: Option<&CredentialSource>) -> bool {
    let is_of_consumers = matches!(credential, Some(CredentialSource::Part(source)) if source == part);
    is_of_consumers
        || matches!(part, KeyPart::Header(name) if *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION)
}
