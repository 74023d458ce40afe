//! The colours of plots.

use std::fmt::Write as _;

/// Colours by name, on light and on dark paper. Nearly all readers can distinguish blue, vermilion and green; all can
/// distinguish the shapes.
pub(super) const COLOURS: [(&str, &str, &str); 11] = [
    ("paper", "#fff", "#0d1117"),
    ("ink", "#1f2328", "#e6edf3"),
    ("muted", "#59636e", "#9aa4af"),
    ("faint", "#dde2e8", "#2b323c"),
    ("ok", "#0072b2", "#56b4e9"),
    ("no", "#d55e00", "#ff8f4d"),
    ("wait", "#00866b", "#3fd0a4"),
    ("a", "#57606a", "#b3bdc8"),
    ("b", "#a0418a", "#e59acb"),
    ("c", "#8a6100", "#e0b84f"),
    ("d", "#2f6f9f", "#8cc4ef"),
];

/// The custom properties of colours, on light and on dark paper.
pub(super) fn properties(colours: &[(&str, &str, &str)]) -> (String, String) {
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, on_light, on_dark) in colours {
        // Writing to a string can't fail.
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(dark, "--{name}:{on_dark};");
    }
    (light, dark)
}

/// The style rules with the colours of plots and `more` colours as custom properties, for a document with charts. Print is
/// on light paper.
#[must_use]
pub fn root_rules(more: &[(&str, &str, &str)]) -> String {
    let (light, dark) = properties(&[&COLOURS[..], more].concat());
    format!(
        ":root{{color-scheme:light dark;{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )
}
