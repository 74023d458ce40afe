//! Decodes zstd (RFC 8878) as its bytes arrive.

use std::io::{self, Write};

use ruzstd::decoding::FrameDecoder;

/// The largest window that is decoded, in bytes: that of RFC 9659 for HTTP.
const MAX_WINDOW: u64 = 8 * 1024 * 1024;
/// The most bytes that wait for the rest of their block: a header of a frame, and a block of the greatest length.
const MAX_WAITING: usize = 128 * 1024 + 64;
/// Enough of a frame for its window: magic number, descriptor, window, dictionary and length.
const HEADER: usize = 18;
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A decoder that writes what it decodes into `W`.
pub(super) struct ZstdDecoder<W> {
    /// None between frames.
    frame: Option<Box<FrameDecoder>>,
    waiting: Vec<u8>,
    out: W,
}

impl<W: Write> ZstdDecoder<W> {
    pub fn new(out: W) -> Self {
        Self { frame: None, waiting: Vec::new(), out }
    }

    pub fn get_ref(&self) -> &W {
        &self.out
    }

    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Decodes the blocks that are complete with these bytes.
    ///
    /// # Errors
    /// Malformed bytes, a window that is too large, or an error of the output.
    pub fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(MAX_WAITING - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = rest;
            self.decode()?;
            if self.waiting.len() == MAX_WAITING {
                return Err(invalid("a block is too long"));
            }
        }
        Ok(())
    }

    fn decode(&mut self) -> io::Result<()> {
        let mut target = vec![0; 64 * 1024];
        loop {
            if self.frame.is_none() {
                if self.waiting.len() < HEADER {
                    return Ok(());
                }
                if window(&self.waiting).is_none_or(|window| window > MAX_WINDOW) {
                    return Err(invalid("it is no frame with a window that can be decoded"));
                }
                self.frame = Some(Box::new(FrameDecoder::new()));
            }
            let Some(frame) = &mut self.frame else { return Ok(()) };
            let decoded = frame.decode_from_to(&self.waiting, &mut target);
            let (read, written) =
                decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.waiting.drain(..read.min(self.waiting.len()));
            self.out.write_all(&target[..written])?;
            if frame.is_finished() && frame.can_collect() == 0 {
                self.frame = None;
            } else if read == 0 && written == 0 {
                return Ok(());
            }
        }
    }
}

/// The window of the frame that begins here; none if these bytes begin no frame with content.
fn window(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (descriptor, rest) = rest.split_first()?;
    let is_single = descriptor & 0x20 != 0;
    if !is_single {
        let byte = u64::from(*rest.first()?);
        let base = 1_u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * (byte & 7));
    }
    // The window is the whole content, whose length follows the number of a dictionary.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(rest.get(dictionary..dictionary + length)?);
    let value = u64::from_le_bytes(bytes);
    // Two bytes count from 256.
    Some(if length == 2 { value + 256 } else { value })
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn decoded(bytes: &[u8], part: usize) -> io::Result<Vec<u8>> {
        let mut decoder = ZstdDecoder::new(Vec::new());
        for part in bytes.chunks(part) {
            decoder.push(part)?;
        }
        decoder.out.flush()?;
        Ok(decoder.out)
    }

    #[test]
    fn frames_are_decoded_however_they_are_split() {
        let text: Vec<u8> = (0..400_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let mut frames = compress_to_vec(&text[..], CompressionLevel::Fastest);
        frames.extend(compress_to_vec(&b"the end of it, which is short"[..], CompressionLevel::Fastest));
        let expected = [&text[..], b"the end of it, which is short"].concat();
        for part in [1_000, 64 * 1024, frames.len()] {
            assert!(decoded(&frames, part).unwrap() == expected, "parts of {part} bytes");
        }
        let small = compress_to_vec(&b"{\"usage\": 1} and more"[..], CompressionLevel::Fastest);
        assert_eq!(decoded(&small, 1).unwrap(), b"{\"usage\": 1} and more");
    }

    #[test]
    fn other_bytes_and_large_windows_are_errors() {
        assert!(decoded(&[b'x'; 64], 64).is_err());
        // A window of 2 GiB.
        let mut large = MAGIC.to_vec();
        large.extend([0, 21 << 3]);
        large.resize(32, 0);
        assert!(decoded(&large, 32).is_err());
    }
}
