//! Pictures of the documentation.

use std::path::Path;

/// The largest picture, in bytes.
const MAX_PICTURE: usize = 180_000;

/// Writes a picture if `UPDATE` is set; otherwise checks that there is one of this size.
#[track_caller]
pub fn keep_picture(name: &str, (width, height): (u32, u32), picture: &[u8]) {
    assert!(picture.len() <= MAX_PICTURE, "{name} has {} bytes", picture.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, picture).unwrap();
    }
    let kept = std::fs::read(&path).unwrap_or_else(|_| panic!("{name} is missing: `make pictures` takes it"));
    // The header of a PNG has the size at byte 16.
    let size = [16, 20].map(|start| u32::from_be_bytes(kept[start..start + 4].try_into().unwrap()));
    assert_eq!(size, [width, height], "{name}");
}
