//! The examples of the reference service, converted: their verdicts are those that its README describes.

use super::setup::Service;
use crate::support::{TIDEGATE, Tidegate, command};

/// The examples, of which limits by the second or the minute are by the day, so that no test waits for them.
const EXAMPLES: &str = "tests/it/cli/convert/golden/envoy-ratelimit/reference.yaml";

/// Of an example that is not limited.
pub const UNLIMITED: usize = 120;

/// Domain, descriptors, and how many requests with them in a row are within the limits, after those above.
pub const CASES: &[(&str, &[&str], usize)] = &[
    // Example 2: nested descriptors, and limits by each value.
    ("messaging", &["message_type=marketing,to_number=1"], 5),
    ("messaging", &["message_type=marketing,to_number=2"], 5),
    ("messaging", &["message_type=other,to_number=2"], UNLIMITED),
    ("messaging", &["to_number=1"], 100),
    // Example 3: a value comes before the key alone.
    ("edge_proxy_per_ip", &["remote_address=50.0.0.1"], 10),
    ("edge_proxy_per_ip", &["remote_address=50.0.0.5"], 0),
    // Example 4: descriptors match rules of their length.
    ("example4", &["key=value,subkey=subvalue"], UNLIMITED),
    ("example4", &["other=value,subkey=subvalue"], 3),
    // Example 5: unlimited.
    ("internal", &["ldap=1"], UNLIMITED),
    ("internal", &["azure=1"], 4),
    // Example 6: shadow mode.
    ("example6", &["service=auth-service,user=user-a"], UNLIMITED),
    ("example6", &["service=auth-service,user=user-b"], 3),
    ("example6", &["service=other,user=user-b"], 3),
    // Example 7: a rule replaces another one, whose limit is not charged.
    ("example7", &["key_1=value_1,user=bkthomps", "key_2=value_2,user=bkthomps"], 10),
    ("example7", &["key_1=value_1,user=bkthomps"], 5),
    // Example 8: values without a rule have a count each.
    ("example8", &["key_1=unspecified_value"], 2),
    ("example8", &["key_1=unspecified_value2"], 2),
    ("example8", &["key_1=value_1"], 4),
    // Examples 9 and 11: patterns, and a threshold that they share.
    ("wildcards", &["path=/files/a"], 3),
    ("wildcards", &["path=/files/b"], 0),
    ("wildcards", &["path=/a/own"], 2),
    ("wildcards", &["path=/b/own"], 2),
    ("wildcards", &["path=/a/other"], 1),
    ("unknown", &["path=/a/other"], UNLIMITED),
];

pub fn converted() -> Service {
    let output = command(TIDEGATE)
        .args(["convert", "envoy-ratelimit", EXAMPLES])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = String::from_utf8(output.stdout).unwrap();
    let proxy = Tidegate::start(&file.replace("127.0.0.1:8081", "127.0.0.1:0"));
    Service { address: proxy.addr(), proxy }
}

#[test]
fn the_examples_of_the_reference_service_have_its_verdicts() {
    let service = converted();
    for (domain, descriptors, most) in CASES {
        assert_eq!(service.allowed(UNLIMITED, domain, descriptors), *most, "{domain} {descriptors:?}");
    }
}
