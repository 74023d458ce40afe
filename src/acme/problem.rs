//! What the errors of the library, and the problems of the ACME server (RFC 8555 §6.7), mean for the next attempt.

use instant_acme::{Error, Problem};

use super::error::{ErrorKind, ObtainError};
use super::http::Http;
use super::spec::AcmeSpec;

/// The begin of the types of problems.
const NAMESPACE: &str = "urn:ietf:params:acme:error:";

/// Why a request has failed.
pub(super) fn failure(spec: &AcmeSpec, http: &Http, error: Error) -> ObtainError {
    let server = spec.server();
    let (kind, message) = match error {
        Error::Api(problem) if kind_of(&problem) == "accountDoesNotExist" => {
            let message = "the ACME server does not know the account: another one is registered";
            (ErrorKind::UnknownAccount, message.to_owned())
        }
        Error::Api(problem) => {
            let message = format!("the ACME server {server} refuses: {}", describe(&problem));
            let kind = if is_temporary(&problem) { ErrorKind::Unavailable } else { ErrorKind::Rejected };
            (kind, message)
        }
        error => (ErrorKind::Unavailable, format!("the ACME server {server} is unavailable: {error}")),
    };
    ObtainError { kind, message, retry_after: http.retry_after() }
}

/// The text of the ACME server.
pub(super) fn describe(problem: &Problem) -> String {
    let kind = kind_of(problem);
    let detail = problem.detail.as_deref().unwrap_or_default();
    let parts = problem.subproblems.iter().filter_map(|part| part.detail.as_deref());
    let all: Vec<&str> = [detail].into_iter().chain(parts).filter(|text| !text.is_empty()).collect();
    match (all.is_empty(), kind) {
        (true, kind) => kind.to_owned(),
        (false, "") => all.join("; "),
        (false, kind) => format!("{} ({kind})", all.join("; ")),
    }
}

/// Whether the ACME server has a problem that may be gone soon.
pub(super) fn is_temporary(problem: &Problem) -> bool {
    // The member `status` is optional.
    problem.status.is_some_and(|status| status >= 500)
        || ["badNonce", "serverInternal"].contains(&kind_of(problem))
}

/// Whether the client has to wait before its next request: the problem is temporary, or a rate limit is reached.
pub(super) fn asks_to_wait(problem: &Problem) -> bool {
    is_temporary(problem) || kind_of(problem) == "rateLimited"
}

/// The type of a problem without its namespace.
fn kind_of(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(NAMESPACE).unwrap_or(kind)
}
