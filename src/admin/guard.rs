//! Checks of requests: Host, token, method and body.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode, request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::client::{ClientId, Failures};
use super::response::AdminError;
use super::spec::{AdminAccess, AdminAddress, AdminSpec};
use crate::gate::host_of;
use crate::time::monotonic;

/// The largest body of a request, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// How long reading a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Rejects requests of a web page whose own domain name resolves to this interface (DNS rebinding). A page can't use an
/// address in place of its name, does not know the token, can't connect to a Unix socket, and has no certificate of ours
/// for its name.
pub(super) fn check_host(spec: &AdminSpec, head: &request::Parts) -> Result<(), AdminError> {
    let mut named: Vec<&[u8]> = head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes).collect();
    if named.len() != 1 {
        return Err(AdminError::bad_request("the request must have exactly one Host header"));
    }
    let is_plain = spec.tls.is_none() && matches!(spec.address, AdminAddress::Tcp(_));
    let is_exposed_to_pages = spec.token.is_none() && is_plain;
    named.extend(head.uri.authority().map(|authority| authority.as_str().as_bytes()));
    for authority in named {
        let host = std::str::from_utf8(authority).ok().and_then(host_of);
        let Some(host) = host else { return Err(AdminError::bad_request("the Host header is not valid")) };
        if is_exposed_to_pages && !is_literal(&host) && !is_localhost(&host) {
            let error =
                AdminError::new(StatusCode::FORBIDDEN, format!("`{host}` is not a name of this interface"));
            return Err(error.help("use its address or localhost, or set `token` in [admin]"));
        }
    }
    Ok(())
}

fn is_literal(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Rejects requests of web pages of other sites, which could otherwise hold all event streams, without reading them. A
/// browser says where a request comes from, unless the connection has no TLS and leads to another machine.
pub(super) fn check_site(head: &request::Parts) -> Result<(), AdminError> {
    match head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => {
            Err(AdminError::new(StatusCode::FORBIDDEN, "the request comes from a page of another site"))
        }
    }
}

/// The access of the client. Rejects requests without a token, if one is configured, and for a while those of clients that
/// have sent wrong tokens.
pub(super) fn check_token(
    spec: &AdminSpec,
    head: &request::Parts,
    client: ClientId,
    failures: &Failures,
) -> Result<AdminAccess, AdminError> {
    if spec.token.is_none() {
        return Ok(AdminAccess::Change);
    }
    let mut values = head.headers.get_all(AUTHORIZATION).iter();
    let (Some(first), second) = (values.next().and_then(|value| bearer(value.as_bytes())), values.next())
    else {
        return Err(unauthorized("a token is required"));
    };
    let now = monotonic();
    // Applies to the right token, too: otherwise a paused client could still recognize a right guess.
    if let Some(pause) = failures.pause(client, now) {
        let seconds = pause.as_millis().div_ceil(1_000).to_string();
        let error = "too many wrong tokens from this address";
        return Err(AdminError::new(StatusCode::TOO_MANY_REQUESTS, error).header(RETRY_AFTER, seconds));
    }
    let access = spec.access(first).filter(|_| second.is_none());
    access.ok_or_else(|| {
        failures.record(client, now);
        unauthorized("wrong token")
    })
}

fn unauthorized(error: &str) -> AdminError {
    AdminError::new(StatusCode::UNAUTHORIZED, error)
        .header(WWW_AUTHENTICATE, "Bearer")
        .help("send the token of [admin]: Authorization: Bearer TOKEN")
}

/// The credentials of the Bearer scheme (RFC 6750 §2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Rejects a request for more than the client may do.
pub(super) fn check_access(granted: AdminAccess, required: AdminAccess) -> Result<(), AdminError> {
    if granted >= required {
        return Ok(());
    }
    let error = AdminError::new(StatusCode::FORBIDDEN, "this token is for reading only");
    Err(error.help("send `token` of [admin] in place of `read_token`"))
}

/// Rejects methods other than GET and HEAD.
pub(super) fn require_read(head: &request::Parts) -> Result<(), AdminError> {
    if head.method == Method::GET || head.method == Method::HEAD {
        return Ok(());
    }
    Err(not_allowed(head, "GET, HEAD"))
}

/// Reads the JSON body of a POST. Requiring its Content-Type rejects requests of web pages of other sites: a browser sends it only
/// after a preflight request, which is never granted (CORS).
pub(super) async fn read_json<T: DeserializeOwned>(
    head: &request::Parts,
    body: Incoming,
) -> Result<T, AdminError> {
    if head.method != Method::POST {
        return Err(not_allowed(head, "POST"));
    }
    let is_json =
        |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON));
    if !head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(is_json) {
        let error = AdminError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be JSON");
        return Err(error.help("send it with Content-Type: application/json"));
    }
    if head.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(AdminError::bad_request("parameters go into the body, not into the query"));
    }
    let body = read(body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| AdminError::bad_request(format!("the body is not valid: {error}")))
}

const JSON: &str = "application/json";

async fn read(body: Incoming) -> Result<Bytes, AdminError> {
    let limited = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, limited).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(AdminError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {MAX_BODY} bytes"),
        )),
        Ok(Err(_)) => Err(AdminError::bad_request("the body is incomplete")),
        Err(_) => Err(AdminError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

fn not_allowed(head: &request::Parts, allowed: &'static str) -> AdminError {
    let error = format!("{} is not allowed for {}", head.method, head.uri.path());
    AdminError::new(StatusCode::METHOD_NOT_ALLOWED, error).header(ALLOW, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::AdminToken;

    const TOKEN: &str = "s3cret-admin-t0ken";
    const READ_TOKEN: &str = "s3cret-read-t0ken";

    fn spec(token: Option<&str>) -> AdminSpec {
        AdminSpec {
            address: AdminAddress::Tcp(([127, 0, 0, 1], 0).into()),
            tls: None,
            token: token.map(|text| AdminToken::new(text).unwrap()),
            read_token: token.map(|_| AdminToken::new(READ_TOKEN).unwrap()),
        }
    }

    fn head(uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let request = http::Request::builder().uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn foreign_host_names_are_rejected_without_a_token() {
        let is_accepted = |host: &str, token| host_check(&[("host", host)], "/", token);
        for host in ["127.0.0.1:9900", "[::1]:9900", "localhost", "LOCALHOST:1", "a.localhost", "192.0.2.7"] {
            assert!(is_accepted(host, None), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "a b", "[::1", "x@127.0.0.1"]
        {
            assert!(!is_accepted(host, None), "{host}");
        }
        assert!(is_accepted("gate.internal:9900", Some(TOKEN)));
        assert!(!host_check(&[("host", "localhost"), ("host", "localhost")], "/", None));
        assert!(!host_check(&[], "/", None));
        assert!(!host_check(&[("host", "localhost")], "http://evil.example/", None));
    }

    fn host_check(headers: &[(&str, &str)], uri: &str, token: Option<&str>) -> bool {
        check_host(&spec(token), &head(uri, headers)).is_ok()
    }

    #[test]
    fn a_unix_socket_accepts_any_host_name() {
        let address = AdminAddress::Unix { path: "/run/admin.sock".into(), mode: 0o600 };
        let spec = AdminSpec { address, tls: None, token: None, read_token: None };
        assert!(check_host(&spec, &head("/", &[("host", "gate.internal")])).is_ok());
        assert!(check_host(&spec, &head("/", &[])).is_err());
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
        let client = ClientId::User(None);
        let shows = |values: &[&str]| {
            let headers: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            check_token(&spec(Some(TOKEN)), &head("/", &headers), client, &Failures::default()).ok()
        };
        let right = format!("Bearer {TOKEN}");
        assert_eq!(shows(&[&right]), Some(AdminAccess::Change));
        assert_eq!(shows(&[&format!("bearer  {TOKEN}")]), Some(AdminAccess::Change));
        assert_eq!(shows(&[&format!("Bearer {READ_TOKEN}")]), Some(AdminAccess::Read));
        let (basic, longer) = (format!("Basic {TOKEN}"), format!("{right}x"));
        for wrong in [
            &[][..],
            &[&right[..right.len() - 1]],
            &[&longer],
            &[&basic],
            &[TOKEN],
            &["Bearer"],
            &[&right, &right],
        ] {
            assert_eq!(shows(wrong), None, "{wrong:?}");
        }
        let open = check_token(&spec(None), &head("/", &[]), client, &Failures::default());
        assert_eq!(open.ok(), Some(AdminAccess::Change));
    }

    #[test]
    fn a_client_that_may_read_may_not_change() {
        assert!(check_access(AdminAccess::Read, AdminAccess::Read).is_ok());
        assert!(check_access(AdminAccess::Change, AdminAccess::Change).is_ok());
        assert!(check_access(AdminAccess::Read, AdminAccess::Change).is_err());
    }
}
