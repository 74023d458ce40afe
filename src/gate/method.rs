//! Registered methods. Method names are case-sensitive (RFC 9110 §9.1), but some servers ignore the case, so a request
//! whose method differs from a known one in case alone could bypass the limits of a route.

use http::Method;

/// The IANA HTTP Method Registry, sorted.
const REGISTERED: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// The value of the key part `method` for all methods that are not registered: otherwise each invented name would have a
/// count of its own.
pub const OTHER_METHOD: &str = "other";

/// Whether a method is registered, in exactly this case.
pub(super) fn is_registered(method: &str) -> bool {
    // The common ones need no search.
    matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS")
        || REGISTERED.binary_search(&method).is_ok()
}

/// Whether a method differs from a registered one in nothing but case.
pub(super) fn is_registered_in_other_case(method: &Method) -> bool {
    let differs_in_case = |registered: &&str| registered.eq_ignore_ascii_case(method.as_str());
    !is_registered(method.as_str()) && REGISTERED.iter().any(differs_in_case)
}

/// The value that the key part `method` has for a method.
pub(super) fn counted(method: &Method) -> &str {
    if is_registered(method.as_str()) { method.as_str() } else { OTHER_METHOD }
}

/// Whether the key part `method` can have this value.
#[must_use]
pub fn is_method_value(text: &str) -> bool {
    text == OTHER_METHOD || is_registered(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §9.1.
    #[test]
    fn registered_methods_are_recognized_in_their_own_case_only() {
        assert!(REGISTERED.is_sorted());
        for name in REGISTERED {
            let lower: Method = name.to_lowercase().parse().unwrap();
            assert!(is_registered(name) && !is_registered(lower.as_str()), "{name}");
            assert!(is_registered_in_other_case(&lower), "{name}");
            assert!(!is_registered_in_other_case(&name.parse().unwrap()), "{name}");
            assert_eq!(counted(&lower), OTHER_METHOD);
        }
        for custom in ["PURGE", "fetch", "GETS", "M-SEARCH"] {
            assert!(!is_registered(custom) && !is_registered_in_other_case(&custom.parse().unwrap()));
        }
    }
}
