//! The lines of an event stream (WHATWG HTML, "Server-sent events").

/// What a line of an event stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Bytes of the data of an event.
    Data(&'a [u8]),
    /// A line of data has ended.
    EndOfData,
    /// The event has ended.
    EndOfEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Start,
    /// So many bytes of `data:`.
    Name(usize),
    Data,
    Comment,
    /// Of another field.
    Other,
}

/// Splits an event stream into the data of its events.
#[derive(Debug)]
pub(super) struct EventLines {
    line: Line,
    /// Whether the last byte was CR, so that LF is part of the same end of a line.
    after_cr: bool,
    is_in_event: bool,
}

const NAME: &[u8] = b"data:";

impl EventLines {
    pub(super) const fn new() -> Self {
        Self { line: Line::Start, after_cr: false, is_in_event: false }
    }

    /// Whether another event can follow here.
    pub(super) fn is_between_events(&self) -> bool {
        self.line == Line::Start && !self.is_in_event
    }

    /// Takes the next part off `bytes`; none at their end.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Part<'a>> {
        while let Some((&first, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                *bytes = rest;
                continue;
            }
            match (self.line, first) {
                (_, b'\r' | b'\n') => {
                    *bytes = rest;
                    self.after_cr = first == b'\r';
                    match std::mem::replace(&mut self.line, Line::Start) {
                        Line::Start => {
                            self.is_in_event = false;
                            return Some(Part::EndOfEvent);
                        }
                        Line::Data => return Some(Part::EndOfData),
                        Line::Name(_) | Line::Comment | Line::Other => {}
                    }
                }
                (Line::Start, b':') => self.line = Line::Comment,
                (Line::Start, _) => {
                    self.line = Line::Name(0);
                    self.is_in_event = true;
                }
                (Line::Name(at), _) if NAME[at] == first => {
                    *bytes = rest;
                    self.line = if at + 1 == NAME.len() { Line::Data } else { Line::Name(at + 1) };
                }
                (Line::Name(_), _) => self.line = Line::Other,
                (Line::Data | Line::Comment | Line::Other, _) => {
                    let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
                    let (line, rest) = bytes.split_at(end);
                    *bytes = rest;
                    if self.line == Line::Data {
                        return Some(Part::Data(line));
                    }
                }
            }
        }
        None
    }
}
