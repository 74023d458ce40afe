//! What may come before the head of an answer is whole.

/// The most interim responses (1xx) to one request; hyper itself would take any number.
const MAX_INTERIM: u8 = 100;
/// Where in a status line its first digit stands, as in `HTTP/1.1 200`.
const DIGIT: u8 = 9;

/// Counts what comes before an answer: its bytes, and interim responses among them. It looks at ten bytes of an
/// answer that has none before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    room: usize,
    interim: u8,
    place: Place,
}

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a status line, behind so many bytes.
    Status(u8),
    /// In the rest of an interim response; whether its present line is empty so far.
    Interim { is_line_empty: bool },
    /// In the answer.
    Answer,
}

impl Heads {
    /// For an answer whose head, with all before it, has no more bytes than that.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room, interim: 0, place: Place::Status(0) }
    }

    /// Whether not a byte has come.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.place == Place::Status(0) && self.interim == 0
    }

    /// Counts these bytes; false if that is too much.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room.checked_sub(bytes.len()) else { return false };
        self.room = room;
        for &byte in bytes {
            match self.place {
                Place::Answer => break,
                // Empty lines before a head are skipped.
                Place::Status(0) if matches!(byte, b'\r' | b'\n') => {}
                Place::Status(DIGIT) if byte == b'1' => self.place = Place::Interim { is_line_empty: false },
                Place::Status(DIGIT) => self.place = Place::Answer,
                Place::Status(behind) => self.place = Place::Status(behind + 1),
                Place::Interim { is_line_empty: true } if byte == b'\n' => {
                    self.interim += 1;
                    if self.interim > MAX_INTERIM {
                        return false;
                    }
                    self.place = Place::Status(0);
                }
                Place::Interim { .. } if byte == b'\n' => {
                    self.place = Place::Interim { is_line_empty: true };
                }
                Place::Interim { .. } if byte == b'\r' => {}
                Place::Interim { .. } => self.place = Place::Interim { is_line_empty: false },
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    const ANSWER: &str = "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 103 no hint\n\nHTTP/1.1 103 no hint\n\n";

    /// Whether all of it may come, in pieces of so many bytes.
    fn may_come(text: &str, piece: usize) -> bool {
        let mut heads = Heads::new(1 << 20);
        text.as_bytes().chunks(piece).all(|bytes| heads.take(bytes))
    }

    #[test]
    fn a_hundred_interim_responses_may_come_and_no_more() {
        for piece in [1, 7, 1 << 20] {
            assert!(may_come(&(HINT.repeat(100) + ANSWER), piece));
            assert!(!may_come(&HINT.repeat(101), piece));
            assert!(!may_come(&HINT.replace("\r\n", "\n").repeat(101), piece));
            assert!(!may_come(&HINT.replace("\r\n\r\n", "\r\n\r\n\r\n").repeat(101), piece));
            // What looks like one within an answer is none.
            assert!(may_come(&ANSWER.repeat(1000), piece));
        }
    }

    #[test]
    fn bytes_are_counted_too() {
        let mut heads = Heads::new(4);
        assert!(heads.is_untouched());
        assert!(heads.take(b"four"));
        assert!(!heads.is_untouched());
        assert!(!heads.take(b"5"));
    }
}
