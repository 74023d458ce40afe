//! In place of `decoder` in a build without decoders.

use crate::usage::UsageReader;

/// A decoder of no coding.
pub(super) enum Decoder {}

impl Decoder {
    /// No coding can be decoded.
    pub fn new(_coding: &[u8], _reader: UsageReader) -> Option<Self> {
        None
    }

    pub fn push(&mut self, _bytes: &[u8]) {
        match *self {}
    }

    pub fn reader(&self) -> Option<&UsageReader> {
        match *self {}
    }

    pub fn into_reader(self) -> Option<UsageReader> {
        match self {}
    }
}
