//! Where `stream_options.include_usage` can be inserted into the body of a request.

/// The `stream_options` of a body.
#[derive(Default)]
pub(super) struct StreamOptions {
    /// The beginning of the first member, and whether there is none.
    root: (usize, bool),
    object: Option<(usize, bool)>,
    count: usize,
    is_unusual: bool,
    /// Whether `include_usage` is there.
    pub(super) is_explicit: bool,
    /// Whether something follows the object, or the body is no JSON in another way.
    pub(super) is_unsure: bool,
}

impl StreamOptions {
    /// Notes where the first member of the body is.
    pub(super) fn open_root(&mut self, at: usize, is_empty: bool) {
        self.root = (at, is_empty);
    }

    /// Notes a member with this name, and whether it is as usual: an object, and the name without escapes.
    pub(super) fn found(&mut self, is_usual: bool) {
        self.count += 1;
        self.is_unusual |= !is_usual;
    }

    /// Notes where the first member of the object is.
    pub(super) fn open(&mut self, at: usize, is_empty: bool) {
        self.object = Some((at, is_empty));
    }

    /// What is to be inserted, and where; none if it is there, or it is unclear where a server would read it.
    pub(super) fn insertion(&self) -> Option<(usize, &'static str)> {
        if self.count > 1 || self.is_unusual || self.is_explicit || self.is_unsure {
            return None;
        }
        Some(match (self.object, self.root) {
            (Some((at, true)), _) => (at, r#""include_usage":true"#),
            (Some((at, false)), _) => (at, r#""include_usage":true,"#),
            (None, (at, true)) => (at, r#""stream_options":{"include_usage":true}"#),
            (None, (at, false)) => (at, r#""stream_options":{"include_usage":true},"#),
        })
    }
}
