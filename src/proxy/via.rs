//! Via on requests, and the detection of request loops (RFC 9110 §7.6.3).
//!
//! A gateway must add itself to the requests that it forwards; on responses Via is optional, and is left out.

use std::sync::LazyLock;

use http::header::{Entry, VIA};
use http::{HeaderMap, HeaderValue, Version};

use crate::gate::RouteId;

/// The name of this process in Via: random, so that proxies that are chained, or share a configuration, differ.
static PSEUDONYM: LazyLock<String> = LazyLock::new(|| format!("tidegate-{:016x}", fastrand::u64(..)));

/// The request has been forwarded by the same route of this process before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loop;

/// What Via says of a request that came in this version and is forwarded by this route. The route is part of the
/// pseudonym because a request may pass one process several times by different routes, and only never ends if it comes
/// back to the same one.
pub(super) fn element(version: Version, route: RouteId) -> HeaderValue {
    let version = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    let element = format!("{version} {}.{}", *PSEUDONYM, route.0);
    HeaderValue::try_from(element).unwrap_or_else(|_| HeaderValue::from_static("1.1 tidegate"))
}

/// Adds our own element to Via.
///
/// # Errors
/// A request whose Via has it already.
pub(super) fn add(headers: &mut HeaderMap, own: HeaderValue) -> Result<(), Loop> {
    let mut via = match headers.entry(VIA) {
        Entry::Vacant(vacant) => {
            vacant.insert(own);
            return Ok(());
        }
        Entry::Occupied(occupied) => occupied,
    };
    // The version may differ each time.
    let pseudonym = own.as_bytes().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let mut words = via.iter().flat_map(|value| value.as_bytes().split(|byte| b" \t,".contains(byte)));
    if words.any(|word| word == pseudonym) {
        return Err(Loop);
    }
    let values: Vec<&[u8]> = via.iter().chain([&own]).map(HeaderValue::as_bytes).collect();
    // Joined valid values are valid.
    if let Ok(list) = HeaderValue::from_bytes(&values.join(&b", "[..])) {
        via.insert(list);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_a_route_that_was_passed_before() {
        let mut headers = HeaderMap::new();
        headers.insert(VIA, HeaderValue::from_static("1.0 fred, 1.1 p.example.net (a, b)"));
        for route in [1, 12, 2] {
            assert_eq!(add(&mut headers, element(Version::HTTP_11, RouteId(route))), Ok(()));
        }
        assert_eq!(headers.get_all(VIA).iter().count(), 1);
        assert_eq!(add(&mut headers, element(Version::HTTP_2, RouteId(12))), Err(Loop));
        headers.append(VIA, element(Version::HTTP_10, RouteId(3)));
        assert_eq!(add(&mut headers, element(Version::HTTP_11, RouteId(3))), Err(Loop));
        assert_eq!(add(&mut headers, element(Version::HTTP_11, RouteId(4))), Ok(()));
    }
}
