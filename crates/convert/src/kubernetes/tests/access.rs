//! Restrictions of access that are not converted.

use super::{converted, ingress, routes};

#[test]
fn settings_of_the_controller_close_all_ingresses() {
    for (data, expected) in [
        ("whitelist-source-range: 10.0.0.0/8", "501"),
        ("enable-modsecurity: \"True\"", "501"),
        ("enable-owasp-modsecurity-crs: \"true\"", "501"),
        ("enable-modsecurity: \"false\"", "s"),
        ("server-snippet: \"allow 10.0.0.0/8; deny all;\"", "501"),
        ("location-snippet: \"deny all;\"", "501"),
        ("http-snippet: \"map $a $b { }\"", "501"),
        ("http-snippet: \"gzip on;\"", "s"),
        ("limit-req-status-code: \"429\"", "s"),
    ] {
        let map = format!("---\nkind: ConfigMap\ndata: {{ {data} }}\n");
        let found = converted(&(ingress("", "a.test", "/") + &map));
        assert_eq!(routes(&found), [format!("a.test/* {expected}")], "{data}");
        let restricting = usize::from(expected == "501");
        assert_eq!((found.account.access.all, found.account.lost), (restricting, 0), "{data}");
    }
}
