//! The pages of the documentation: their code blocks, links and headings.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A Markdown file of the repository.
#[derive(Debug)]
pub struct Page {
    /// Its path from the root of the repository.
    pub path: String,
    pub text: String,
}

/// A fenced code block.
#[derive(Clone, Debug)]
pub struct Block {
    /// What follows the opening fence.
    pub info: String,
    pub text: String,
    /// The line of the opening fence, from 1.
    pub line: usize,
}

/// A link or an image.
#[derive(Debug)]
pub struct Link {
    pub target: String,
    /// The line where it starts, from 1.
    pub line: usize,
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All pages, in the order of their paths.
pub fn pages() -> Vec<Page> {
    let mut paths = markdown(root(), false);
    for directory in ["docs", "charts", ".github"] {
        paths.extend(markdown(&root().join(directory), true));
    }
    paths.sort();
    let pages: Vec<Page> = paths.iter().map(|path| Page::read(path)).collect();
    assert!(pages.len() > 15, "{} pages", pages.len());
    pages
}

/// The pages of the configuration: docs/configuration.md and those below it.
pub fn configuration() -> Vec<Page> {
    pages().into_iter().filter(|page| page.path.starts_with("docs/configuration")).collect()
}

/// The Markdown files in a directory, and in those below it.
fn markdown(directory: &Path, is_recursive: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && is_recursive {
            found.extend(markdown(&path, true));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        Self { path: path.strip_prefix(root()).unwrap().display().to_string(), text }
    }

    /// Whether its console blocks are run.
    pub fn is_played(&self) -> bool {
        self.path.starts_with("docs/recipes/")
            || ["README.md", "docs/getting-started.md", "docs/consumers.md", "docs/forward-auth.md"]
                .contains(&&*self.path)
    }

    /// Its fenced code blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_inside = false;
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    is_inside = true;
                    let line = self.line(range.start);
                    blocks.push(Block { info: info.to_string(), text: String::new(), line });
                }
                Event::Text(text) if is_inside => blocks.last_mut().unwrap().text.push_str(&text),
                Event::End(TagEnd::CodeBlock) => is_inside = false,
                _ => {}
            }
        }
        blocks
    }

    /// Its links and images.
    pub fn links(&self) -> Vec<Link> {
        let links = self.events().filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(Link { target: dest_url.to_string(), line: self.line(range.start) })
            }
            _ => None,
        });
        links.collect()
    }

    /// The anchors of its headings, by the rules of GitHub.
    pub fn anchors(&self) -> Vec<String> {
        let (mut anchors, mut heading) = (Vec::new(), None::<String>);
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (event, _) in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap());
                    let repetitions = seen.entry(anchor.clone()).or_default();
                    anchors.push(match repetitions {
                        0 => anchor,
                        _ => format!("{anchor}-{repetitions}"),
                    });
                    *repetitions += 1;
                }
                _ => {}
            }
        }
        anchors
    }

    fn events(&self) -> impl Iterator<Item = (Event<'_>, std::ops::Range<usize>)> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter()
    }

    fn line(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }
}

impl Block {
    /// The first word of its info string, which is its language.
    pub fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// The name of the file that it is, if its first line is a comment with nothing but that.
    pub fn file_name(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        let stem = name.strip_suffix(".toml")?;
        (!stem.contains([' ', '/'])).then_some(name)
    }
}

/// The anchor of a heading that has no equal one before it.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor("`[limits.NAME]`"), "limitsname");
    assert_eq!(anchor("Charging by status"), "charging-by-status");
    assert_eq!(anchor("HTTP/2 to clients"), "http2-to-clients");
    assert_eq!(anchor("1. Look at what clients do"), "1-look-at-what-clients-do");
}
