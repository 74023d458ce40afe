//! What our parser reads from the bytes of a connection.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, Uri};
use tidegate::http1::{
    BodyDecoder, BodyFault, Decoded, Fields, Framing, HeadLimits, MAX_INTERIM, ParseError, parse_request,
    parse_response,
};

use super::{Lines, Message, sorted, sorted_map, status_line};

pub const LIMITS: HeadLimits = HeadLimits { max_bytes: 64 * 1024, max_headers: 100 };

/// What was read from a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The messages without interim responses; the last may be incomplete.
    pub messages: Vec<Message>,
    pub end: End,
    /// How many requests wait for `100 Continue`.
    pub continues: usize,
}

/// How the reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another message may follow.
    Open,
    /// No message may follow the last one.
    Closed,
    /// The bytes ended within a message.
    Incomplete,
    /// More interim responses than are allowed.
    Interim,
    Head(ParseError),
    Body(BodyFault),
}

/// A head, of a request or of a response.
struct Head {
    message: Message,
    framing: Framing,
    keeps_alive: bool,
    expects_continue: bool,
    is_interim: bool,
    length: usize,
}

#[derive(Debug)]
enum Place {
    Head { seen: usize },
    Body { decoder: BodyDecoder, keeps_alive: bool, length: Option<u64> },
    End(End),
}

struct Connection<'m> {
    /// Of the request, where responses are read.
    method: Option<&'m Method>,
    buffer: BytesMut,
    place: Place,
    reading: Reading,
    interim: u8,
    last: Option<Uri>,
}

/// Reads requests until the end of the bytes or of the connection.
pub fn read_requests(pieces: impl Iterator<Item = Bytes>) -> Reading {
    Connection::new(None).read(pieces)
}

/// Reads the response to a request with this method; the connection ends behind the bytes.
pub fn read_response(method: &Method, pieces: impl Iterator<Item = Bytes>) -> Reading {
    Connection::new(Some(method)).read(pieces)
}

impl<'m> Connection<'m> {
    fn new(method: Option<&'m Method>) -> Self {
        Self {
            method,
            buffer: BytesMut::new(),
            place: Place::Head { seen: 0 },
            reading: Reading { messages: Vec::new(), end: End::Open, continues: 0 },
            interim: 0,
            last: None,
        }
    }

    fn read(mut self, pieces: impl Iterator<Item = Bytes>) -> Reading {
        for piece in pieces {
            self.buffer.extend_from_slice(&piece);
            while self.step() {}
        }
        self.reading.end = match &mut self.place {
            Place::Head { .. } if self.buffer.is_empty() && self.method.is_none() => End::Open,
            Place::Head { .. } => End::Incomplete,
            Place::Body { decoder, .. } => match decoder.finish() {
                Ok(()) => {
                    assert!(decoder.is_end());
                    self.reading.messages.last_mut().unwrap().is_complete = true;
                    End::Closed
                }
                Err(fault) => {
                    assert_eq!(fault, BodyFault::Incomplete);
                    End::Incomplete
                }
            },
            Place::End(End::Open) if !self.buffer.is_empty() => End::Closed,
            Place::End(end) => *end,
        };
        self.reading
    }

    /// Takes a step; says whether there may be another.
    fn step(&mut self) -> bool {
        match &mut self.place {
            Place::End(_) => false,
            Place::Head { seen } => {
                let seen = *seen;
                match self.head(seen) {
                    Ok(Some(head)) => self.begin(head),
                    Ok(None) => {
                        // What is skipped because of bytes that are known was no complete head.
                        assert!(
                            seen == 0 || self.buffer.len() > 1024 || !matches!(self.head(0), Ok(Some(_)))
                        );
                        self.place = Place::Head { seen: self.buffer.len() };
                        return false;
                    }
                    Err(error) => self.place = Place::End(End::Head(error)),
                }
                true
            }
            Place::Body { decoder, keeps_alive, length } => {
                let message = self.reading.messages.last_mut().unwrap();
                match decoder.decode(&mut self.buffer) {
                    Ok(None) => {
                        assert!(!decoder.is_end());
                        return false;
                    }
                    Ok(Some(Decoded::Data(data))) => {
                        assert!(!data.is_empty());
                        message.body.extend_from_slice(&data);
                        if let Some(length) = length {
                            assert_eq!(decoder.remaining(), Some(*length - message.body.len() as u64));
                        }
                    }
                    Ok(Some(Decoded::End(trailers))) => {
                        assert!(decoder.is_end());
                        message.is_complete = true;
                        message.trailers = trailers.map_or(Lines::new(), |trailers| sorted_map(&trailers));
                        let is_usable = *keeps_alive && !decoder.must_close();
                        self.place = match (is_usable, self.method) {
                            (true, None) => Place::Head { seen: 0 },
                            (true, Some(_)) => Place::End(End::Open),
                            (false, _) => Place::End(End::Closed),
                        };
                    }
                    Err(fault) => self.place = Place::End(End::Body(fault)),
                }
                true
            }
        }
    }

    fn head(&self, seen: usize) -> Result<Option<Head>, ParseError> {
        let Some(method) = self.method else {
            let parsed = parse_request(&self.buffer, seen, LIMITS, self.last.as_ref())?;
            return Ok(parsed.map(|parsed| Head {
                message: Message {
                    start: format!("{} {} {:?}", parsed.head.method, parsed.head.uri, parsed.head.version),
                    lines: lines(&parsed.head.fields),
                    ..Message::default()
                },
                framing: parsed.framing,
                keeps_alive: parsed.keeps_alive,
                expects_continue: parsed.expects_continue,
                is_interim: false,
                length: parsed.length,
            }));
        };
        Ok(parse_response(&self.buffer, seen, LIMITS, method)?.map(|parsed| {
            let status = parsed.head.status;
            let usual = status.canonical_reason().unwrap_or_default().as_bytes();
            let reason = parsed.head.reason.as_deref().unwrap_or(usual);
            Head {
                message: Message {
                    start: status_line(status.as_u16(), reason, parsed.head.version),
                    lines: lines(&parsed.head.fields),
                    ..Message::default()
                },
                framing: parsed.framing,
                // Behind a 101 there is another protocol.
                keeps_alive: parsed.keeps_alive && status != 101,
                expects_continue: false,
                is_interim: status.is_informational() && status != 101,
                length: parsed.length,
            }
        }))
    }

    fn begin(&mut self, head: Head) {
        if self.method.is_none() {
            let target = head.message.start.split(' ').nth(1).unwrap();
            self.last = target.parse().ok();
        }
        self.buffer.advance(head.length);
        if head.is_interim {
            self.interim += 1;
            let is_over = self.interim > MAX_INTERIM;
            self.place = if is_over { Place::End(End::Interim) } else { Place::Head { seen: 0 } };
            return;
        }
        let framing = head.framing;
        self.reading.continues += usize::from(head.expects_continue && framing != Framing::Empty);
        self.reading.messages.push(head.message);
        self.place = Place::Body {
            decoder: match self.method {
                None => BodyDecoder::for_request(framing),
                Some(_) => BodyDecoder::for_response(framing),
            },
            keeps_alive: head.keeps_alive,
            length: if let Framing::Length(length) = framing { Some(length) } else { None },
        };
    }
}

fn lines(fields: &Fields) -> Lines {
    sorted(fields.iter().map(|field| (field.name.as_str(), field.value)))
}
