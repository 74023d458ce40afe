//! The container image.

const DOCKERFILE: &str = include_str!("../../../Dockerfile");
const COMPOSE: &str = include_str!("../../../compose.yaml");

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
