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
        "CapabilityBoundingSet=",
        "MemoryDenyWriteExecute=yes",
        "NoNewPrivileges=yes",
        "PrivateUsers=yes",
        "ProtectProc=invisible",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
        "UMask=0077",
    ] {
        assert!(settings.contains(setting), "{setting}");
    }
    // A capability has no effect outside the service's own user namespace.
    assert!(!settings.iter().any(|setting| setting.starts_with("AmbientCapabilities=")));
}
