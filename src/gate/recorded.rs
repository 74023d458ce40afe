//! Parts of a request that a log has, while the request itself is gone.

use std::sync::Arc;

use crate::consumers::Consumer;

/// Parts of a request that a log has in fields of its own, where its head lacks them.
#[derive(Clone, Debug, Default)]
pub struct RecordedParts {
    /// The consumer, whatever the credential.
    pub consumer: Option<Arc<Consumer>>,
    /// Values of key parts, by their form in the configuration. They count only if the head has none.
    pub values: Vec<(Box<str>, Vec<u8>)>,
}

impl RecordedParts {
    /// The value of the part with this form.
    pub(super) fn value(&self, part: &str) -> Option<&[u8]> {
        let found = self.values.iter().find(|(recorded, _)| **recorded == *part);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }
}
