//! The values of the lines with one name.

use std::slice::Iter;

use super::super::name::FieldName;
use super::lines::Line;

/// The values of the lines with one name.
#[derive(Clone, Debug)]
pub struct Values<'f, 'n> {
    pub(super) text: &'f [u8],
    pub(super) lines: Iter<'f, Line>,
    pub(super) name: FieldName<'n>,
}

impl<'f> Iterator for Values<'f, '_> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let Self { text, lines, name } = self;
        lines.find(|line| line.is_named(text, *name)).map(|line| line.value(text))
    }
}

impl DoubleEndedIterator for Values<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Self { text, lines, name } = self;
        lines.rfind(|line| line.is_named(text, *name)).map(|line| line.value(text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::name::names::{TE, VIA};
    use super::super::Fields;
    use super::*;

    #[test]
    fn values_are_iterated_from_both_ends() {
        let lines = [("via", "1"), ("host", "a"), ("via", "2"), ("x-one", "b"), ("via", "3")];
        let fields: Fields = lines.into_iter().collect();
        assert_eq!(fields.get_all(VIA).rev().collect::<Vec<_>>(), [b"3", b"2", b"1"]);
        let mut values = fields.get_all(VIA);
        assert_eq!((values.next_back(), values.next()), (Some(&b"3"[..]), Some(&b"1"[..])));
        assert_eq!((values.next_back(), values.next()), (Some(&b"2"[..]), None));
        assert_eq!(
            (fields.get_all(FieldName::new(b"x-one")).next_back(), fields.get_all(TE).next_back()),
            (Some(&b"b"[..]), None)
        );
    }
}
