//! The texts of a configuration: that of its file, and those of the files that it includes. They follow each other, so that a
//! byte offset is a place in one of them.

/// The text of a file.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The path of the file, for messages.
    pub name: String,
    pub text: String,
    /// The offset of its first byte among all texts.
    pub start: usize,
}

/// All texts.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub main: Source,
    pub included: Vec<Source>,
}

impl Sources {
    /// The text of a file that includes no others.
    pub fn new(name: &str, text: &str) -> Self {
        Self { main: Source { name: name.into(), text: text.into(), start: 0 }, included: Vec::new() }
    }

    /// The offset at which the text of the next file begins. A byte is left between two files, so that the end of one is
    /// not the start of the next.
    pub fn next_start(&self) -> usize {
        let last = self.included.last().unwrap_or(&self.main);
        last.start + last.text.len() + 1
    }

    /// The source that has the byte at this offset.
    pub fn of(&self, at: usize) -> &Source {
        self.included.iter().rfind(|source| source.start <= at).unwrap_or(&self.main)
    }

    /// All of them, in their order.
    pub fn all(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.main).chain(&self.included)
    }

    /// With other texts, which have the lengths of these.
    pub fn map(mut self, text: impl Fn(&str) -> String) -> Self {
        for source in std::iter::once(&mut self.main).chain(&mut self.included) {
            source.text = text(&source.text);
        }
        self
    }
}
