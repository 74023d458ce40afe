//! The unit for systemd.

use std::collections::BTreeSet;

const SERVICE: &str = include_str!("../../../config/tidegate.service");

/// The settings of the unit, without comments.
fn settings() -> BTreeSet<&'static str> {
    SERVICE.lines().filter(|line| line.contains('=') && !line.starts_with('#')).collect()
}

#[test]
fn the_systemd_unit_is_sandboxed() {
    let settings = settings();
    for setting in [
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
        "MemoryDenyWriteExecute=yes",
        "NoNewPrivileges=yes",
        "ProtectProc=invisible",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
        "UMask=0077",
    ] {
        assert!(settings.contains(setting), "{setting}");
    }
    // A capability has no effect in a user namespace of the service.
    assert!(!settings.iter().any(|setting| setting.starts_with("PrivateUsers=")));
}
