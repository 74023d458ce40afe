//! Via on requests, and the detection of request loops (RFC 9110 §7.6.3).
//!
//! A gateway must add itself to the Via of requests that it forwards; on responses Via is optional and left out.

use std::sync::LazyLock;

use http::Version;

use crate::gate::RouteId;
use crate::http1::names::VIA;
use crate::http1::{Fields, push_decimal};

/// The name of this process in Via: random, so that proxies that are chained, or share a configuration, differ.
static PSEUDONYM: LazyLock<String> = LazyLock::new(|| format!("tidegate-{:016x}", fastrand::u64(..)));

/// The request has been forwarded by the same route of this process before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loop;

/// The Via element of a request of this version that this route forwards. The route is part of the pseudonym because a
/// request may legitimately pass one process several times by different routes; it loops if it comes back to the same.
pub(super) fn element(version: Version, route: RouteId) -> Vec<u8> {
    let version = match version {
        Version::HTTP_10 => "1.0 ",
        Version::HTTP_2 => "2 ",
        _ => "1.1 ",
    };
    // Not `format!`: a connection may carry only one request, for which formatting would cost more than all its other
    // headers.
    let mut element = [version.as_bytes(), PSEUDONYM.as_bytes(), b"."].concat();
    push_decimal(&mut element, route.0.into());
    element
}

/// Adds our own element to Via. Rejects a request whose Via has it already.
pub(super) fn add(fields: &mut Fields, own: &[u8]) -> Result<(), Loop> {
    if !fields.contains(VIA) {
        fields.push(VIA, own);
        return Ok(());
    }
    // Compare the pseudonym alone: the version may differ each time.
    let pseudonym = own.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let mut words = fields.get_all(VIA).flat_map(|value| value.split(|byte| b" \t,".contains(byte)));
    if words.any(|word| word == pseudonym) {
        return Err(Loop);
    }
    let list = fields.get_all(VIA).chain([own]).collect::<Vec<_>>().join(&b", "[..]);
    fields.set(VIA, &list);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §7.6.3.
    #[test]
    fn a_request_that_passes_the_same_route_again_is_a_loop() {
        let mut fields = Fields::new();
        fields.push(VIA, b"1.0 fred, 1.1 p.example.net (a, b)");
        for route in [1, 12, 2] {
            assert_eq!(add(&mut fields, &element(Version::HTTP_11, RouteId(route))), Ok(()));
        }
        assert_eq!(fields.get_all(VIA).count(), 1);
        assert!(fields.get(VIA).unwrap().starts_with(b"1.0 fred, 1.1 p.example.net (a, b), 1.1 tidegate-"));
        assert_eq!(add(&mut fields, &element(Version::HTTP_2, RouteId(12))), Err(Loop));
        fields.push(VIA, &element(Version::HTTP_10, RouteId(3)));
        assert_eq!(add(&mut fields, &element(Version::HTTP_11, RouteId(3))), Err(Loop));
        assert_eq!(add(&mut fields, &element(Version::HTTP_11, RouteId(4))), Ok(()));
    }
}
