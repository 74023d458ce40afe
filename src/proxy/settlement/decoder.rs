//! Decodes a compressed response beside the stream.

use std::io::{self, Write};

use flate2::write::{MultiGzDecoder, ZlibDecoder};

use super::zstd::ZstdDecoder;
use crate::usage::{Framing, UsageReader};

/// The most bytes that are decoded of a response: a small one may expand a thousandfold.
const MAX_DECODED: u64 = 64 * 1024 * 1024;

/// A response that is decoded, and read, while it passes.
pub(super) struct Decoder {
    coding: Coding,
    has_failed: bool,
}

enum Coding {
    Gzip(MultiGzDecoder<Decoded>),
    Deflate(ZlibDecoder<Decoded>),
    Zstd(ZstdDecoder<Decoded>),
}

/// Where decoded bytes go.
struct Decoded {
    reader: UsageReader,
    /// How many more bytes are decoded.
    left: u64,
}

impl Decoder {
    /// A decoder of this Content-Encoding; none if it can't be decoded.
    pub fn new(coding: &[u8], reader: UsageReader) -> Result<Self, UsageReader> {
        let decoded = |reader| Decoded { reader, left: MAX_DECODED };
        let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        let coding = if is("gzip") || is("x-gzip") {
            Coding::Gzip(MultiGzDecoder::new(decoded(reader)))
        } else if is("deflate") {
            Coding::Deflate(ZlibDecoder::new(decoded(reader)))
        } else if is("zstd") {
            Coding::Zstd(ZstdDecoder::new(decoded(reader)))
        } else {
            return Err(reader);
        };
        Ok(Self { coding, has_failed: false })
    }

    /// Decodes and reads the next bytes. After malformed or too many ones, nothing more is read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.has_failed {
            return;
        }
        let pushed = match &mut self.coding {
            Coding::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Coding::Deflate(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Coding::Zstd(decoder) => decoder.push(bytes),
        };
        self.has_failed = pushed.is_err();
    }

    /// The reader; none if the body can't be decoded.
    pub fn reader(&self) -> Option<&UsageReader> {
        let decoded = match &self.coding {
            Coding::Gzip(decoder) => decoder.get_ref(),
            Coding::Deflate(decoder) => decoder.get_ref(),
            Coding::Zstd(decoder) => decoder.get_ref(),
        };
        (!self.has_failed).then_some(&decoded.reader)
    }

    /// The reader at the end of the body; none if the body can't be decoded.
    pub fn into_reader(mut self) -> Option<UsageReader> {
        let decoded = match &mut self.coding {
            Coding::Gzip(decoder) => decoder.get_mut(),
            Coding::Deflate(decoder) => decoder.get_mut(),
            Coding::Zstd(decoder) => decoder.get_mut(),
        };
        let reader = std::mem::replace(&mut decoded.reader, UsageReader::new(Framing::Json, &[]));
        (!self.has_failed).then_some(reader)
    }
}

impl Write for Decoded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| io::Error::other("the decoded body is too large"))?;
        self.reader.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
