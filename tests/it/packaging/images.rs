//! The container image.

const DOCKERFILE: &str = include_str!("../../../Dockerfile");
const COMPOSE: &str = include_str!("../../../compose.production.yaml");

#[test]
fn base_images_have_digests_and_can_be_replaced() {
    let stages: Vec<&str> = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(stages, ["${BUILD_IMAGE} AS build", "${RUNTIME_IMAGE}"]);
    for argument in ["BUILD_IMAGE", "RUNTIME_IMAGE"] {
        let start = format!("ARG {argument}=");
        let image = DOCKERFILE.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        let digest = image.split_once("@sha256:").map(|(_, digest)| digest).unwrap();
        assert!(digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit()), "{image}");
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

#[test]
fn the_health_check_needs_no_shell() {
    let check = DOCKERFILE.lines().find(|line| line.starts_with("HEALTHCHECK ")).unwrap();
    assert!(check.ends_with(" CMD [\"/usr/local/bin/tidegate\", \"health\"]"), "{check}");
}
