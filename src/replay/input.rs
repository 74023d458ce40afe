//! Opens logs: files and standard input, plain or compressed with gzip or zstd.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic numbers of zstd's skippable frames are these with any last digit (RFC 8878 §3.1.2).
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
const BUFFER: usize = 128 * 1024;

/// The bytes of a log, without compression.
pub(super) type Bytes = Box<dyn Read + Send>;

/// How much of all logs was read, in bytes of the files. Any thread can look at it.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    total: AtomicU64,
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    progress: Arc<Progress>,
}

/// Skips NUL bytes at the start. A log has them instead of what was cut from it while a server was writing at its end.
struct WithoutHole<R> {
    inner: R,
    is_skipped: bool,
}

/// Decompresses all frames of a zstd stream.
struct ZstdFrames<R> {
    state: Option<FramesState<R>>,
}

enum FramesState<R> {
    /// Before a frame, or at the end.
    Between(R),
    Within(R, Box<FrameDecoder>),
}

impl Progress {
    /// Bytes that were read.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The bytes of all files together; of standard input and pipes, whose size is unknown, none.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn add_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Opens a file, or standard input for `-`. Bytes that are read count in `progress`.
pub(super) fn open(path: &Path, progress: &Arc<Progress>) -> io::Result<Bytes> {
    let progress = Arc::clone(progress);
    if path == Path::new("-") {
        return Ok(decompressed(Counted { inner: io::stdin(), progress }));
    }
    Ok(decompressed(Counted { inner: File::open(path)?, progress }))
}

/// The content of a stream that may be compressed, which its first bytes show.
pub(super) fn decompressed(mut inner: impl Read + Send + 'static) -> Bytes {
    let mut start = Vec::with_capacity(ZSTD.len());
    // Reading on fails again.
    let _ = inner.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start);
    let (is_gzip, is_zstd) = (start.starts_with(&GZIP), start == ZSTD || start.ends_with(&ZSTD_SKIPPABLE));
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(start).chain(inner));
    if is_gzip {
        Box::new(WithoutHole { inner: MultiGzDecoder::new(whole), is_skipped: false })
    } else if is_zstd {
        let inner = ZstdFrames { state: Some(FramesState::Between(whole)) };
        Box::new(WithoutHole { inner, is_skipped: false })
    } else {
        Box::new(WithoutHole { inner: whole, is_skipped: false })
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: Read> Read for WithoutHole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.inner.read(buffer)?;
            if self.is_skipped || count == 0 {
                return Ok(count);
            }
            if let Some(start) = buffer[..count].iter().position(|byte| *byte != 0) {
                self.is_skipped = true;
                buffer.copy_within(start..count, 0);
                return Ok(count - start);
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // After an error there is no state, and the stream is at its end.
        while let Some(state) = self.state.take() {
            match state {
                FramesState::Within(mut rest, mut decoder) => {
                    let count = read_frame(&mut rest, &mut decoder, buffer)?;
                    if count > 0 || buffer.is_empty() {
                        self.state = Some(FramesState::Within(rest, decoder));
                        return Ok(count);
                    }
                    self.state = Some(FramesState::Between(rest));
                }
                FramesState::Between(rest) => self.state = next_frame(rest)?,
            }
        }
        Ok(0)
    }
}

/// Begins the next frame, or skips one; none at the end of the stream.
fn next_frame<R: BufRead>(mut rest: R) -> io::Result<Option<FramesState<R>>> {
    if rest.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut decoder = Box::new(FrameDecoder::new());
    match decoder.init(&mut rest) {
        Ok(()) => Ok(Some(FramesState::Within(rest, decoder))),
        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
            io::copy(&mut rest.by_ref().take(length.into()), &mut io::sink())?;
            Ok(Some(FramesState::Between(rest)))
        }
        Err(error) => Err(invalid(error)),
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Decodes blocks until there is something to return; returns 0 at the end of the frame.
fn read_frame<R: Read>(rest: &mut R, decoder: &mut FrameDecoder, buffer: &mut [u8]) -> io::Result<usize> {
    while decoder.can_collect() == 0 && !decoder.is_finished() {
        decoder.decode_blocks(&mut *rest, BlockDecodingStrategy::UptoBlocks(1)).map_err(invalid)?;
    }
    decoder.read(buffer)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn content(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        decompressed(Cursor::new(bytes)).read_to_end(&mut content)?;
        Ok(content)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    #[test]
    fn logs_of_gzip_and_zstd_are_decompressed() {
        let plain = include_bytes!("../../tests/logs/nginx-combined.log");
        assert_eq!(content(plain.to_vec()).unwrap(), plain);
        assert_eq!(
            content(include_bytes!("../../tests/logs/nginx-combined.log.gz").to_vec()).unwrap(),
            plain
        );
        assert_eq!(
            content(include_bytes!("../../tests/logs/nginx-combined.log.zst").to_vec()).unwrap(),
            plain
        );
    }

    #[test]
    fn several_members_and_frames_are_one_log() {
        let (a, b) = (vec![b'a'; 300_000], b"b");
        let expected = [&a[..], b].concat();
        assert_eq!(content([gzip(&a), gzip(b)].concat()).unwrap(), expected);
        let skippable = b"\x53\x2a\x4d\x18\x03\0\0\0xyz".to_vec();
        let frames = [skippable.clone(), zstd(&a), skippable.clone(), zstd(b""), zstd(b), skippable].concat();
        assert_eq!(content(frames).unwrap(), expected);
    }

    #[test]
    fn nul_bytes_at_the_start_are_skipped() {
        let hole = vec![0; 300_000];
        let text = [&hole[..], b"a\0b\n\0c"].concat();
        for bytes in [text.clone(), gzip(&text), zstd(&text)] {
            assert_eq!(content(bytes).unwrap(), b"a\0b\n\0c");
        }
        assert_eq!(content(hole).unwrap(), b"");
    }

    #[test]
    fn damaged_streams_are_errors() {
        let text = b"0123456789".repeat(1_000);
        for whole in [gzip(&text), zstd(&text)] {
            assert!(content(whole[..whole.len() - 5].to_vec()).is_err());
        }
        for short in [&b""[..], b"\x1f", b"ab"] {
            assert_eq!(content(short.to_vec()).unwrap(), short);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_streams_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_usize..4) {
            let magic: [&[u8]; 4] = [&GZIP, &ZSTD, b"\x50\x2a\x4d\x18", b""];
            bytes.splice(0..0, magic[kind].iter().copied());
            let _ = content(bytes);
        }
    }
}
