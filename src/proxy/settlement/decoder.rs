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
    pub fn new(coding: &[u8], reader: UsageReader) -> Option<Self> {
        let decoded = |reader| Decoded { reader, left: MAX_DECODED };
        let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        let coding = if is("gzip") || is("x-gzip") {
            Coding::Gzip(MultiGzDecoder::new(decoded(reader)))
        } else if is("deflate") {
            Coding::Deflate(ZlibDecoder::new(decoded(reader)))
        } else if is("zstd") {
            Coding::Zstd(ZstdDecoder::new(decoded(reader)))
        } else {
            return None;
        };
        Some(Self { coding, has_failed: false })
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

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn is_read(coding: &str, bytes: &[u8], part: usize) -> bool {
        let reader = UsageReader::new(Framing::Json, &[]);
        let Some(mut decoder) = Decoder::new(coding.as_bytes(), reader) else { return false };
        bytes.chunks(part).for_each(|part| decoder.push(part));
        decoder.into_reader().is_some()
    }

    #[test]
    fn only_what_can_be_decoded_is_read() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"{\"cost\": 1}").unwrap();
        let gzip = gzip.finish().unwrap();
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(b"{\"cost\": 1}").unwrap();
        let deflate = deflate.finish().unwrap();
        for part in [1, 5, 100] {
            assert!(is_read("GZip", &gzip, part) && is_read("deflate", &deflate, part));
            assert!(!is_read("gzip", &deflate, part) && !is_read("deflate", &gzip, part));
            assert!(!is_read("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff", part));
        }
        assert!(!is_read("br", &gzip, 100));
    }

    #[test]
    fn a_body_that_expands_too_far_is_not_read() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..=MAX_DECODED >> 20 {
            gzip.write_all(&zeros).unwrap();
        }
        assert!(!is_read("gzip", &gzip.finish().unwrap(), 64 * 1024));
    }
}
