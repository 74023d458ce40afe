//! An incremental parser of JSON, which keeps the path to the present value and nothing else.

/// Objects and arrays in each other; deeper texts are malformed for us.
const MAX_DEPTH: usize = 512;

/// The longest number that is read.
const MAX_NUMBER: usize = 24;

/// The longest text that is read, such as the name of a model.
pub(super) const MAX_TEXT: usize = 128;

/// What a parser reports. The depth of a member of the outermost object is 1.
pub(super) trait Sink {
    /// An object or array at this depth begins.
    fn open(&mut self, depth: usize, is_object: bool);
    /// The next member of the object at this depth has this name; none if the name is escaped or too long.
    fn name(&mut self, depth: usize, name: Option<&[u8]>);
    /// The next element of the array at this depth begins.
    fn element(&mut self, depth: usize);
    /// A value that is no object or array; `depth` is that of its container, or 0.
    fn scalar(&mut self, depth: usize, scalar: Scalar<'_>);
    /// A string begins: whether its text is wanted.
    fn begin_string(&mut self, depth: usize) -> bool;
    /// Bytes of text of a string.
    fn text(&mut self, bytes: usize);
    /// An object or array at this depth begins as a value in the container at this depth.
    fn container(&mut self, depth: usize);
}

/// A value that is no object or array.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar<'a> {
    /// A number as written; none if it is too long.
    Number(Option<&'a [u8]>),
    /// A string, if its text was wanted, is short, and has only simple escapes.
    Text(Option<&'a [u8]>),
    True,
    False,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value, and in an array perhaps before its end.
    Value,
    FirstElement,
    Text,
    TextEscape,
    TextUnicode(u8),
    Name,
    NameEscape,
    NameUnicode(u8),
    Number(Number),
    Literal(&'static [u8]),
    FirstName,
    NextName,
    Colon,
    After,
    Done,
    Malformed,
}

/// The last part of a number (RFC 8259 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Sign,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// One JSON text.
#[derive(Debug)]
pub(super) struct Parser {
    state: State,
    depth: usize,
    /// A bit for each level: whether it is an object.
    objects: [u64; MAX_DEPTH / 64],
    buffer: Box<[u8]>,
    length: usize,
    max_name: usize,
    /// Whether the present name, number or text is kept in the buffer.
    is_kept: bool,
    unicode: u16,
    has_begun: bool,
}

impl Parser {
    /// A parser that reads names up to this length.
    pub(super) fn new(max_name: usize) -> Self {
        Self {
            state: State::Value,
            depth: 0,
            objects: [0; MAX_DEPTH / 64],
            buffer: vec![0; max_name.max(MAX_TEXT)].into(),
            length: 0,
            max_name,
            is_kept: false,
            unicode: 0,
            has_begun: false,
        }
    }

    /// Begins the next text.
    pub(super) fn reset(&mut self) {
        self.state = State::Value;
        self.depth = 0;
        self.has_begun = false;
    }

    /// Whether there was anything but whitespace.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the text is whole.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.state == State::Malformed
    }

    /// Ends the text: a number outside of objects and arrays ends with it.
    pub(super) fn end(&mut self, sink: &mut impl Sink) {
        if self.depth == 0
            && let State::Number(part) = self.state
        {
            self.end_number(part, sink);
        }
        if self.has_begun && self.state != State::Done {
            self.state = State::Malformed;
        }
    }

    /// Reads the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.state {
                State::Text | State::Name => at += self.run(&bytes[at..], sink),
                State::Number(part) => match part.next(byte) {
                    Some(part) => {
                        self.keep(&bytes[at..=at], MAX_NUMBER);
                        self.state = State::Number(part);
                        at += 1;
                    }
                    None => self.end_number(part, sink),
                },
                State::Malformed => return,
                State::TextEscape | State::TextUnicode(_) | State::NameEscape | State::NameUnicode(_) => {
                    self.escape(byte, sink);
                    at += 1;
                }
                State::Literal(rest) => {
                    self.literal(rest, byte, sink);
                    at += 1;
                }
                _ => {
                    if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                        self.has_begun = true;
                        self.structure(byte, sink);
                    }
                    at += 1;
                }
            }
        }
    }

    /// Reads a string up to its next escape or its end; returns how many bytes that are.
    fn run(&mut self, bytes: &[u8], sink: &mut impl Sink) -> usize {
        // Most names and texts of events are short; a search by vectors costs more to begin.
        let short = &bytes[..bytes.len().min(16)];
        let end = short
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\'))
            .or_else(|| memchr::memchr2(b'"', b'\\', &bytes[short.len()..]).map(|at| short.len() + at));
        let run = &bytes[..end.unwrap_or(bytes.len())];
        let is_name = self.state == State::Name;
        if self.is_kept {
            self.keep(run, if is_name { self.max_name } else { MAX_TEXT });
        }
        if !is_name {
            sink.text(run.len());
        }
        let Some(end) = end else { return bytes.len() };
        if bytes[end] == b'\\' {
            self.state = if is_name { State::NameEscape } else { State::TextEscape };
        } else if is_name {
            sink.name(self.depth, self.is_kept.then_some(&self.buffer[..self.length]));
            self.state = State::Colon;
        } else {
            sink.scalar(self.depth, Scalar::Text(self.is_kept.then_some(&self.buffer[..self.length])));
            self.after();
        }
        end + 1
    }

    fn escape(&mut self, byte: u8, sink: &mut impl Sink) {
        self.state = match (self.state, byte) {
            (State::TextEscape, b'u') => {
                (self.is_kept, self.unicode) = (false, 0);
                State::TextUnicode(4)
            }
            (State::NameEscape, b'u') => {
                self.is_kept = false;
                State::NameUnicode(4)
            }
            (State::TextEscape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                if matches!(byte, b'"' | b'\\' | b'/') && self.is_kept {
                    self.keep(&[byte], MAX_TEXT);
                } else {
                    self.is_kept = false;
                }
                sink.text(1);
                State::Text
            }
            (State::NameEscape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.is_kept = false;
                State::Name
            }
            (State::TextUnicode(left), byte) if byte.is_ascii_hexdigit() => {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    _ => (byte | 0x20) - b'a' + 10,
                };
                self.unicode = self.unicode << 4 | u16::from(digit);
                if left == 1 {
                    sink.text(match self.unicode {
                        0..0x80 => 1,
                        // Half of a pair, which has four bytes.
                        0x80..0x800 | 0xD800..0xE000 => 2,
                        _ => 3,
                    });
                    State::Text
                } else {
                    State::TextUnicode(left - 1)
                }
            }
            (State::NameUnicode(left), byte) if byte.is_ascii_hexdigit() => {
                if left == 1 {
                    State::Name
                } else {
                    State::NameUnicode(left - 1)
                }
            }
            _ => State::Malformed,
        };
    }

    fn literal(&mut self, rest: &'static [u8], byte: u8, sink: &mut impl Sink) {
        let Some((expected, rest)) = rest.split_first() else { return self.state = State::Malformed };
        // The last byte of `rest` is not of the literal, but says which one it is.
        match rest {
            _ if *expected != byte => self.state = State::Malformed,
            [kind] => {
                let scalar = match kind {
                    b'T' => Scalar::True,
                    b'F' => Scalar::False,
                    _ => Scalar::Null,
                };
                sink.scalar(self.depth, scalar);
                self.after();
            }
            rest => self.state = State::Literal(rest),
        }
    }

    fn structure(&mut self, byte: u8, sink: &mut impl Sink) {
        match (self.state, byte) {
            (State::FirstElement, b']') | (State::FirstName, b'}') => self.close(),
            (State::Value | State::FirstElement, _) => {
                if self.state == State::FirstElement {
                    sink.element(self.depth);
                }
                self.value(byte, sink);
            }
            (State::FirstName | State::NextName, b'"') => {
                (self.length, self.is_kept) = (0, true);
                self.state = State::Name;
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::After, b',') if self.is_object() => self.state = State::NextName,
            (State::After, b',') => {
                sink.element(self.depth);
                self.state = State::Value;
            }
            (State::After, b'}') if self.is_object() => self.close(),
            (State::After, b']') if !self.is_object() => self.close(),
            _ => self.state = State::Malformed,
        }
    }

    fn value(&mut self, byte: u8, sink: &mut impl Sink) {
        self.length = 0;
        self.state = match byte {
            b'{' | b'[' => {
                sink.container(self.depth);
                return self.open(byte == b'{', sink);
            }
            b'"' => {
                self.is_kept = sink.begin_string(self.depth);
                State::Text
            }
            b'-' | b'0'..=b'9' => {
                self.is_kept = true;
                self.keep(&[byte], MAX_NUMBER);
                State::Number(match byte {
                    b'-' => Number::Sign,
                    b'0' => Number::Zero,
                    _ => Number::Whole,
                })
            }
            b't' => State::Literal(b"rueT"),
            b'f' => State::Literal(b"alseF"),
            b'n' => State::Literal(b"ullN"),
            _ => State::Malformed,
        };
    }

    fn end_number(&mut self, part: Number, sink: &mut impl Sink) {
        if matches!(part, Number::Zero | Number::Whole | Number::Fraction | Number::ExponentDigits) {
            sink.scalar(self.depth, Scalar::Number(self.is_kept.then_some(&self.buffer[..self.length])));
            self.after();
        } else {
            self.state = State::Malformed;
        }
    }

    fn open(&mut self, is_object: bool, sink: &mut impl Sink) {
        if self.depth == MAX_DEPTH {
            self.state = State::Malformed;
            return;
        }
        let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
        if is_object {
            self.objects[word] |= bit;
        } else {
            self.objects[word] &= !bit;
        }
        self.depth += 1;
        sink.open(self.depth, is_object);
        self.state = if is_object { State::FirstName } else { State::FirstElement };
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.after();
    }

    fn after(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::After };
    }

    fn is_object(&self) -> bool {
        let level = self.depth - 1;
        self.objects[level / 64] >> (level % 64) & 1 == 1
    }

    /// Appends to the buffer; what is longer than `max` is not kept.
    fn keep(&mut self, bytes: &[u8], max: usize) {
        let end = self.length + bytes.len();
        if !self.is_kept || end > max {
            self.is_kept = false;
            return;
        }
        self.buffer[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}

impl Number {
    fn next(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Sign, b'0') => Some(Self::Zero),
            (Self::Sign, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Some(Self::Whole),
            (Self::Zero | Self::Whole, b'.') => Some(Self::Point),
            (Self::Point | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Some(Self::Exponent),
            (Self::Exponent, b'+' | b'-') => Some(Self::ExponentSign),
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Some(Self::ExponentDigits)
            }
            _ => None,
        }
    }
}
