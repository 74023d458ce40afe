//! The SVG document that is drawn on, from top to bottom.

use std::fmt::{self, Write as _};

const RULES: &str = "\
text{font:12px system-ui,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:var(--ink)}\
.title{font-size:17px;font-weight:600}.name{font-size:14px;font-weight:600}.muted{fill:var(--muted)}\
.small{font-size:11px;fill:var(--muted)}.paper{fill:var(--paper)}\
.line{stroke:var(--faint);fill:none}.base{stroke:var(--muted);fill:none}\
.limit{stroke:var(--muted);stroke-dasharray:5 4;fill:none}\
.ok{fill:var(--ok)}.wait{fill:var(--wait)}.held{stroke:var(--wait);fill:none}\
.no{stroke:var(--no);fill:none}.other{stroke:var(--muted);fill:none}\
.level{fill:none;stroke-width:1.6}.fill{stroke:none;fill:var(--a);opacity:.14}\
.a{stroke:var(--a)}.b{stroke:var(--b);stroke-dasharray:7 3}.c{stroke:var(--c);stroke-dasharray:2.5 2.5}\
.d{stroke:var(--d);stroke-dasharray:9 3 2 3}";

/// The style sheet. Each use of a custom property follows a declaration with the light colour itself, for renderers that
/// do not support custom properties and would draw black.
fn style() -> String {
    let mut rules = RULES.to_owned();
    let (light, dark) = properties(&COLOURS);
    for (name, on_light, _) in COLOURS {
        for property in ["fill", "stroke"] {
            let declaration = format!("{property}:var(--{name})");
            rules = rules.replace(&declaration, &format!("{property}:{on_light};{declaration}"));
        }
    }
    format!(":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}")
}

/// A document, and how far down it is drawn.
pub(super) struct Drawing {
    body: String,
    /// The y coordinate of the lowest element.
    pub y: f64,
}

/// A horizontal coordinate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Pixels(f64),
    /// A percentage of the width of the drawing, from 0 to 100.
    Percent(f64),
}

impl From<f64> for Length {
    fn from(pixels: f64) -> Self {
        Self::Pixels(pixels)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pixels(pixels) => round(*pixels).fmt(f),
            Self::Percent(percent) => write!(f, "{}%", round(*percent)),
        }
    }
}

/// The position of a text, and which end of it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    x: Length,
    y: f64,
    /// The value of `text-anchor`.
    anchor: &'static str,
}

impl Position {
    /// The left end is at `x`.
    pub fn left(x: impl Into<Length>, y: f64) -> Self {
        Self { x: x.into(), y, anchor: "start" }
    }

    /// The middle is at `x`.
    pub fn middle(x: impl Into<Length>, y: f64) -> Self {
        Self { x: x.into(), y, anchor: "middle" }
    }

    /// The right end is at `x`.
    pub fn right(x: impl Into<Length>, y: f64) -> Self {
        Self { x: x.into(), y, anchor: "end" }
    }
}

impl Drawing {
    pub fn new() -> Self {
        Self { body: String::new(), y: 0.0 }
    }

    /// Adds an element as it is.
    pub fn add(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// Adds a text of this class.
    pub fn text(&mut self, class: &str, position: Position, text: &str) {
        let Position { x, y, anchor } = position;
        let (y, text) = (round(y), escape(text));
        // Writing to a string can't fail.
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Adds a path of this class.
    pub fn path(&mut self, class: &str, path: &str) {
        self.add(&format!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// Adds all elements of another drawing, in front of those of this one.
    pub fn append(&mut self, other: &Self) {
        self.body.push_str(&other.body);
    }

    /// The elements, without the document.
    pub fn into_elements(self) -> String {
        self.body
    }

    /// The whole file.
    pub fn finish(self, title: &str) -> String {
        let height = round(self.y + 18.0);
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n<style>{}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{}</svg>\n",
            style(),
            self.body
        )
    }
}

/// A coordinate, to a tenth of a pixel.
pub(super) fn round(number: f64) -> f64 {
    // Adding zero makes a negative zero a plain one.
    (number * 10.0).round() / 10.0 + 0.0
}

/// Escapes text for elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML can't represent these.
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Truncates a text to at most `max` characters.
pub(super) fn truncate(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

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

/// The width of the plot.
pub(super) const WIDTH: f64 = 800.0;
/// The left and right ends of the time axis.
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = 776.0;

/// Converts a value that is drawn; a screen has fewer digits than an `f64`.
#[expect(clippy::cast_precision_loss, reason = "an error of 2^-53 is no pixel")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_is_escaped() {
        assert_eq!(escape("<a b=\"c\">&\u{1}\u{ffff}"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_texts_are_truncated() {
        assert_eq!((truncate("abc", 3), truncate("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
    }
}
