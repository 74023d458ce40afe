//! Via on requests, and the detection of request loops (RFC 9110 §7.6.3).
//!
//! A gateway must add itself to the Via of requests that it forwards; on responses Via is optional and left out.
//!
//! A server may copy all headers of a request to another one that it sends through the same proxy, so a request may pass one process
//! several times. It loops if the same route forwards it to the same target again. Targets that differ each time, as by a rewrite,
//! are bounded by the number of passes. The first pass writes no target, so that requests that pass once cost no hash; a loop is
//! detected at the third pass.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use http::Version;

use crate::gate::RouteId;
use crate::http1::names::{HOST, VIA};
use crate::http1::{Fields, RequestHead, push_decimal};

/// How often a request passes this process.
const MAX_PASSES: usize = 5;
/// The name of this process in Via: random, so that proxies that are chained, or share a configuration, differ.
static PSEUDONYM: LazyLock<String> = LazyLock::new(|| format!("tidegate-{:016x}.", fastrand::u64(..)));

/// Hashes of targets have a random key, so that no client can choose targets with equal hashes.
static TARGETS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The same route of this process has forwarded the request to the same target before, or the request has passed this process too
/// often.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loop;

/// A hash of the host and the target of a request, as it has arrived.
pub(super) fn target(head: &RequestHead) -> u32 {
    let mut hasher = TARGETS.build_hasher();
    hasher.write(head.fields.get(HOST).unwrap_or_default());
    // No host has this byte.
    hasher.write_u8(b'/');
    hasher.write(head.uri.path().as_bytes());
    if let Some(query) = head.uri.query() {
        hasher.write_u8(b'?');
        hasher.write(query.as_bytes());
    }
    #[expect(clippy::cast_possible_truncation, reason = "half of the hash is enough for five passes")]
    let hash = hasher.finish() as u32;
    hash
}

/// The Via element of requests of this version that this route forwards.
pub(super) fn element(version: Version, route: RouteId) -> Vec<u8> {
    let version = match version {
        Version::HTTP_10 => "1.0 ",
        Version::HTTP_2 => "2 ",
        _ => "1.1 ",
    };
    // Not `format!`: a connection may carry only one request, for which formatting would cost more than all its other
    // headers.
    let mut element = [version.as_bytes(), PSEUDONYM.as_bytes()].concat();
    push_decimal(&mut element, route.0.into());
    element
}

/// Adds our own element to Via. `target` is the hash of the target of a request that has Via; if the request has passed this process
/// before, the element gets it. Rejects a request whose Via has this element already, or too many of this process.
pub(super) fn add(fields: &mut Fields, own: &[u8], target: Option<u32>) -> Result<(), Loop> {
    let Some(target) = target else {
        fields.push(VIA, own);
        return Ok(());
    };
    let words = || fields.get_all(VIA).flat_map(|value| value.split(|byte| b" \t,".contains(byte)));
    let passes = || words().filter(|word| word.starts_with(PSEUDONYM.as_bytes())).take(MAX_PASSES);
    let mut own = own.to_vec();
    if passes().next().is_some() {
        own.extend_from_slice(format!(".{target:08x}").as_bytes());
    }
    // Compare the pseudonym alone: the version may differ each time.
    let pseudonym = own.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    if passes().enumerate().any(|(earlier, word)| word == pseudonym || earlier + 1 == MAX_PASSES) {
        return Err(Loop);
    }
    let list = fields.get_all(VIA).chain([&*own]).collect::<Vec<_>>().join(&b", "[..]);
    fields.set(VIA, &list);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(fields: &mut Fields, version: Version, route: u32, target: u32) -> Result<(), Loop> {
        let target = fields.contains(VIA).then_some(target);
        add(fields, &element(version, RouteId(route)), target)
    }

    /// RFC 9110 §7.6.3.
    #[test]
    fn a_request_to_the_same_target_by_the_same_route_is_a_loop() {
        let mut fields = Fields::new();
        fields.push(VIA, b"1.0 fred, 1.1 p.example.net (a, b)");
        for (route, target) in [(1, 7), (12, 7), (12, 8)] {
            assert_eq!(pass(&mut fields, Version::HTTP_11, route, target), Ok(()));
        }
        assert_eq!(fields.get_all(VIA).count(), 1);
        assert!(fields.get(VIA).unwrap().starts_with(b"1.0 fred, 1.1 p.example.net (a, b), 1.1 tidegate-"));
        assert_eq!(pass(&mut fields, Version::HTTP_2, 12, 7), Err(Loop));
        assert_eq!(pass(&mut fields, Version::HTTP_10, 3, 7), Ok(()));
        assert_eq!(pass(&mut fields, Version::HTTP_11, 3, 7), Err(Loop));
    }

    #[test]
    fn a_request_passes_five_times() {
        let mut fields = Fields::new();
        for target in 0..5 {
            assert_eq!(pass(&mut fields, Version::HTTP_11, 1, target), Ok(()), "{target}");
        }
        assert_eq!(pass(&mut fields, Version::HTTP_11, 1, 5), Err(Loop));
        let mut fields = Fields::new();
        fields.push(VIA, b"1.1 tidegate-0123456789abcdef.1.00000000, 1.1 other");
        assert_eq!(pass(&mut fields, Version::HTTP_11, 1, 0), Ok(()));
        assert!(!fields.get(VIA).unwrap().ends_with(b".00000000"));
    }
}
