//! The files with which tidegate is installed: the unit for systemd and the container image.

use std::collections::BTreeSet;

const SERVICE: &str = include_str!("../../../config/tidegate.service");
const DOCKERFILE: &str = include_str!("../../../Dockerfile");
const COMPOSE: &str = include_str!("../../../compose.yaml");

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

#[test]
fn base_images_can_be_given_by_digest() {
    let stages: Vec<&str> = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(stages, ["${BUILD_IMAGE} AS build", "${RUNTIME_IMAGE}"]);
    for argument in ["BUILD_IMAGE", "RUNTIME_IMAGE"] {
        assert!(DOCKERFILE.contains(&format!("\nARG {argument}=")), "{argument}");
        assert!(COMPOSE.contains(argument), "{argument}");
    }
    let images: Vec<&str> = COMPOSE.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    assert!(images.iter().all(|image| image.starts_with("${")), "{images:?}");
}

#[test]
fn the_image_has_the_licences_of_its_dependencies() {
    assert!(DOCKERFILE.contains("cargo-about generate --locked --fail"));
    assert!(DOCKERFILE.contains("COPY --from=build /LICENSES-OF-DEPENDENCIES /usr/share/doc/tidegate/"));
}
