//! The sheet that is drawn on.

use std::fmt::Write as _;

use super::WIDTH;

/// Names of colours, on light paper and on dark. Blue, vermilion and green can be distinguished by nearly all readers; the
/// shapes by all.
const COLOURS: [(&str, &str, &str); 11] = [
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

/// The style of a picture. Before each custom property stands the light colour itself, for renderers that do not know
/// custom properties and would draw black.
fn style() -> String {
    let mut rules = RULES.to_owned();
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, on_light, on_dark) in COLOURS {
        // Writing to a string can't fail.
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(dark, "--{name}:{on_dark};");
        for property in ["fill", "stroke"] {
            let declaration = format!("{property}:var(--{name})");
            rules = rules.replace(&declaration, &format!("{property}:{on_light};{declaration}"));
        }
    }
    format!(":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}")
}

/// What has been drawn, and down to where.
pub(super) struct Page {
    body: String,
    /// The lowest place that is taken.
    pub y: f64,
}

impl Page {
    pub fn new() -> Self {
        Self { body: String::new(), y: 0.0 }
    }

    /// Adds an element as it is.
    pub fn add(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// Adds a text of this class; `anchor` is start, middle or end.
    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let (x, y, text) = (round(x), round(y), escape(text));
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

    /// Adds what is on another page, in front of what is on this one.
    pub fn append(&mut self, other: &Self) {
        self.body.push_str(&other.body);
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

/// Text as it stands between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no word for these.
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A text of at most so many characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escape("<a b=\"c\">&\u{1}\u{ffff}"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
    }
}
