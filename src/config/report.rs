//! Problems of a configuration, shown as compilers do: the position, the line itself, and help.

use std::io::{self, Write as _};
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, Title};

use super::file_pattern::NamedFiles;
use super::secrets;
use super::sources::{Source, Sources};
use crate::admin::api::ProblemInfo;
use crate::telemetry::{for_stderr, has_colours};
use crate::text::plural;

/// Spans further apart than this many bytes are shown as two excerpts.
const ONE_EXCERPT: usize = 2_000;

/// The errors or warnings of one file, and of those that it includes.
#[derive(Clone, Debug)]
pub struct Report {
    /// The texts with their secrets masked, byte for byte as long as the files.
    sources: Sources,
    problems: Vec<Problem>,
    /// The other files that it names, as far as it could be read.
    files: Box<NamedFiles>,
    /// The report of another file.
    next: Option<Box<Report>>,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    title: String,
    span: Option<Range<usize>>,
    label: Option<String>,
    related: Option<(Range<usize>, String)>,
    help: Vec<String>,
    is_warning: bool,
    is_derived: bool,
}

impl Problem {
    /// An error at a span of the file.
    pub fn error(span: Range<usize>, title: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::without_span(title) }
    }

    /// A warning at a span of the file.
    pub fn warning(span: Range<usize>, title: impl Into<String>) -> Self {
        Self::error(span, title).into_warning()
    }

    /// This problem as a warning.
    pub fn into_warning(self) -> Self {
        Self { is_warning: true, ..self }
    }

    /// An error of the whole file.
    pub fn without_span(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            span: None,
            label: None,
            related: None,
            help: Vec::new(),
            is_warning: false,
            is_derived: false,
        }
    }

    /// Adds a label to the span.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds a related span, with its label.
    pub fn related(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related = Some((span, label.into()));
        self
    }

    /// Adds help: how to fix the problem.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Applies `words` to all texts of the problem.
    pub fn reworded(self, words: impl Fn(&str) -> String) -> Self {
        Self {
            title: words(&self.title),
            label: self.label.as_deref().map(&words),
            related: self.related.map(|(span, label)| (span, words(&label))),
            help: self.help.iter().map(|help| words(help)).collect(),
            ..self
        }
    }

    /// The problem with its span moved by so many bytes.
    pub fn moved(self, by: usize) -> Self {
        Self { span: self.span.map(|span| span.start + by..span.end + by), ..self }
    }

    /// Marks a problem that may follow from another one: a missing key or name in a text that is not valid TOML.
    pub fn derived(mut self) -> Self {
        self.is_derived = true;
        self
    }

    pub fn is_warning(&self) -> bool {
        self.is_warning
    }

    pub fn is_derived(&self) -> bool {
        self.is_derived
    }

    fn title(&self) -> Title<'_> {
        let level = if self.is_warning { Level::WARNING } else { Level::ERROR };
        level.primary_title(&*self.title)
    }

    pub fn start(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.start)
    }
}

impl Report {
    pub(super) fn new(file: &str, text: &str, problems: Vec<Problem>) -> Self {
        Self::of(Sources::new(file, text), problems)
    }

    /// The problems of these texts.
    pub(super) fn of(sources: Sources, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::start);
        // A value can be read twice.
        problems.dedup();
        Self { sources: sources.map(secrets::masked), problems, files: Box::default(), next: None }
    }

    /// This report, followed by the problems of another file.
    pub(super) fn followed_by(mut self, next: Self) -> Self {
        self.next = match self.next {
            Some(own) => Some(Box::new(own.followed_by(next))),
            None => (!next.is_empty()).then(|| Box::new(next)),
        };
        self
    }

    pub(super) fn naming(self, files: NamedFiles) -> Self {
        Self { files: Box::new(files), ..self }
    }

    /// The other files that the file names, as far as it could be read.
    #[must_use]
    pub fn files(&self) -> &NamedFiles {
        &self.files
    }

    /// The report of a file that can't be read, and that this option names.
    pub(super) fn unreadable(file: &str, error: &io::Error, option: &str) -> Self {
        let problem = Problem::without_span(format!("can't read {file}: {error}"));
        let problem = match error.kind() {
            io::ErrorKind::NotFound => problem.help(format!("name another file with {option}")),
            io::ErrorKind::PermissionDenied => problem
                .help(format!("let the user that runs tidegate read it, or name another file with {option}")),
            _ => problem.help(format!("{option} names a file, written in TOML")),
        };
        Self::new("", "", vec![problem])
    }

    /// The report of a file that is not text.
    pub(super) fn not_utf8(file: &str, bytes: &[u8], error: std::str::Utf8Error) -> Self {
        let mut text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
        let at = text.len();
        text.push(char::REPLACEMENT_CHARACTER);
        let problem = Problem::error(at..text.len(), "the file is not valid UTF-8")
            .label("this byte is not UTF-8")
            .help("TOML is written in UTF-8: save the file in that encoding");
        Self::new(file, &text, vec![problem])
    }

    /// Whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of problems.
    #[must_use]
    pub fn len(&self) -> usize {
        self.problems.len() + self.next.as_ref().map_or(0, |next| next.len())
    }

    /// The file with its number of problems; `None` for a file that could not be read.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let (count, file) = (self.len(), &self.sources.main.name);
        (!file.is_empty()).then(|| format!("{file}: {count} problem{}", plural(count)))
    }

    /// The text, with colours or without; no line end after the last line.
    #[must_use]
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let shown = |problem: &Problem| match &problem.span {
            Some(span) => renderer.render(&[self.located(problem, span)]),
            None => self.unlocated(problem, &renderer),
        };
        let next = self.next.as_ref().map(|next| next.render(colours));
        self.problems.iter().map(shown).chain(next).collect::<Vec<_>>().join("\n\n")
    }

    /// The text for standard error.
    #[must_use]
    pub fn text(&self) -> String {
        self.render(has_colours(&io::stderr()))
    }

    /// Prints it to standard error.
    ///
    /// # Errors
    /// It can't be written.
    pub fn print(&self) -> io::Result<()> {
        writeln!(io::stderr(), "{}", for_stderr(&self.text()))
    }

    /// One line for each problem, for the log.
    pub fn lines(&self) -> Box<dyn Iterator<Item = String> + '_> {
        let next = self.next.as_deref().into_iter().flat_map(Self::lines);
        Box::new(self.own_lines().chain(next))
    }

    fn own_lines(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| {
            let mut line = problem.span.as_ref().map_or_else(String::new, |span| {
                let source = self.sources.of(span.start);
                let (row, column) = position(source, span.start);
                format!("{}:{row}:{column}: ", source.name)
            });
            line.push_str(&problem.title);
            for help in &problem.help {
                line.push_str("; ");
                line.push_str(help);
            }
            line
        })
    }

    /// The problems for other programs.
    #[must_use]
    pub fn problems(&self) -> Vec<ProblemInfo> {
        let info = |problem: &Problem| {
            let source = self.sources.of(problem.start());
            let positions =
                problem.span.as_ref().map(|span| [span.start, span.end].map(|at| position(source, at)));
            let [start, end] = positions.map_or([None; 2], |positions| positions.map(Some));
            ProblemInfo {
                file: source.name.clone(),
                line: start.map(|(line, _)| line),
                column: start.map(|(_, column)| column),
                end_line: end.map(|(line, _)| line),
                end_column: end.map(|(_, column)| column),
                message: problem.title.clone(),
                help: problem.help.clone(),
            }
        };
        let next = self.next.iter().flat_map(|next| next.problems());
        self.problems.iter().map(info).chain(next).collect()
    }

    fn located<'a>(&'a self, problem: &'a Problem, span: &'a Range<usize>) -> Group<'a> {
        let main = (AnnotationKind::Primary, span, problem.label.as_deref());
        let group = Group::with_title(problem.title());
        let group = match &problem.related {
            None => group.element(self.excerpt(&[main])),
            Some((other, label)) => {
                let related = (AnnotationKind::Context, other, Some(&**label));
                let same_file = self.sources.of(other.start).start == self.sources.of(span.start).start;
                if !same_file || other.start.abs_diff(span.start) > ONE_EXCERPT {
                    group.element(self.excerpt(&[main])).element(self.excerpt(&[related]))
                } else {
                    group.element(self.excerpt(&[main, related]))
                }
            }
        };
        group.elements(problem.help.iter().map(|help| Level::HELP.message(&**help)))
    }

    fn unlocated(&self, problem: &Problem, renderer: &Renderer) -> String {
        let group = Group::with_title(problem.title());
        let file = &*self.sources.main.name;
        let group = if file.is_empty() { group } else { group.element(Origin::path(file)) };
        let help = problem.help.iter().map(|help| Group::with_title(Level::HELP.primary_title(&**help)));
        let groups = std::iter::once(group).chain(help);
        groups.map(|group| renderer.render(&[group])).collect::<Vec<_>>().join("\n")
    }

    /// The lines from the first mark to the last, which are in one file. The renderer gets only these, so that it does not scan a long file for
    /// each problem.
    fn excerpt<'a>(
        &'a self,
        marks: &[(AnnotationKind, &Range<usize>, Option<&'a str>)],
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let first = marks.iter().map(|(_, span, _)| span.start).min().unwrap_or(0);
        let last = marks.iter().map(|(_, span, _)| span.end).max().unwrap_or(0);
        let source = self.sources.of(first);
        let text = &*source.text;
        let (first, last) = (floor(source, first), floor(source, last));
        let start = text[..first].rfind('\n').map_or(0, |end| end + 1);
        let end = text[last..].find('\n').map_or(text.len(), |at| last + at);
        let row = text[..start].matches('\n').count() + 1;
        let annotations = marks.iter().map(|(kind, span, label)| {
            let (from, to) = (floor(source, span.start), floor(source, span.end));
            kind.span(from - start..to.max(from) - start).label(*label)
        });
        let window = Snippet::source(&text[start..end.max(start)]).line_start(row).path(&*source.name);
        window.annotations(annotations)
    }
}

/// The line and the column of a byte in its file, each from 1; a column is a character.
fn position(source: &Source, at: usize) -> (usize, usize) {
    let before = &source.text[..floor(source, at)];
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// The last start of a character at or before the byte `at` of all texts, as an offset in the text of its file.
fn floor(source: &Source, at: usize) -> usize {
    source.text.floor_char_boundary(at.saturating_sub(source.start).min(source.text.len()))
}

/// Without colours.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\nb = \"é\"\n";

    #[test]
    fn a_problem_shows_its_line_its_position_and_help() {
        let problem = Problem::error(10..14, "`é` is not right").label("here").help("write `e`");
        let report = Report::new("x.toml", TEXT, vec![problem]);
        let shown = "error: `é` is not right\n --> x.toml:2:5\n  |\n2 | b = \"é\"\n  |     ^^^ here\n  |\n  \
                     = help: write `e`";
        assert_eq!(report.to_string(), shown);
        assert_eq!(report.lines().collect::<Vec<_>>(), ["x.toml:2:5: `é` is not right; write `e`"]);
        assert!(report.render(true).contains('\u{1b}'));
    }

    #[test]
    fn problems_come_in_the_order_of_the_file() {
        let problems = vec![Problem::error(6..7, "second"), Problem::warning(0..1, "first")];
        let lines: Vec<String> = Report::new("x.toml", TEXT, problems).lines().collect();
        assert_eq!(lines, ["x.toml:1:1: first", "x.toml:2:1: second"]);
    }

    #[test]
    fn distant_spans_are_two_excerpts() {
        let text = format!("name = 1\n{}name = 2\n", "# a long comment\n".repeat(500));
        let second = text.rfind("name").unwrap_or_default();
        let problem = Problem::error(second..second + 4, "twice").related(0..4, "first here");
        let shown = Report::new("x.toml", &text, vec![problem]).to_string();
        assert!(shown.contains("x.toml:502:1") && shown.contains("1 | name = 1"), "{shown}");
        assert!(shown.lines().count() < 14, "{shown}");
    }

    #[test]
    fn marks_beyond_the_text_or_inside_a_character_are_moved() {
        for span in [12..12, 11..13, 0..99, 99..99] {
            let report = Report::new("x.toml", TEXT, vec![Problem::error(span, "unusual")]);
            assert!(report.to_string().starts_with("error: unusual\n"));
        }
        let report = Report::new("x.toml", "", vec![Problem::error(0..1, "unusual")]);
        assert!(report.to_string().starts_with("error: unusual\n"));
    }
}
