//! Writes Protocol Buffers messages, as far as spans need them: a span is written field by field while its request runs,
//! without a copy of it in memory.

/// A message that is written.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// The wire types of fields.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

impl Message {
    /// A message without fields, and with memory for this many bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// The written message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds an integer, a truth value or an element of an enumeration.
    pub fn integer(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// Adds a number of fixed size.
    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a number of fixed size.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds bytes, a text or a message that is written already.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds bytes that `write` appends, or a message whose fields it adds.
    pub fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH_DELIMITED);
        // Its length is known afterwards; that of most has one byte.
        let at = self.0.len();
        self.0.push(0);
        write(self);
        let mut length = Self::default();
        length.varint((self.0.len() - at - 1) as u64);
        self.0.splice(at..=at, length.0);
    }

    /// Appends bytes within [`Message::nested`].
    pub fn extend(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.0.extend(bytes);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.0.push(low_bits(value));
    }
}

/// The seven lowest bits.
fn low_bits(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

/// Reads the fields of a message that are integers or have a length, until one is malformed.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, FieldValue<'_>)> {
    std::iter::from_fn(move || {
        let tag = take_varint(&mut message)?;
        let field = match u32::try_from(tag & 7).ok()? {
            VARINT => FieldValue::Integer(take_varint(&mut message)?),
            LENGTH_DELIMITED => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                FieldValue::Bytes(message.split_off(..length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

/// The value of a field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'m> {
    /// An integer.
    Integer(u64),
    /// Bytes, a text or a message.
    Bytes(&'m [u8]),
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_encoding() {
        let mut message = Message::default();
        message.integer(1, 150);
        message.bytes(2, b"testing");
        message.nested(3, |nested| nested.integer(1, 150));
        message.fixed32(4, 1);
        message.fixed64(16, 1);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            b"\x12\x07testing",
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x25, 1, 0, 0, 0],
            &[0x81, 0x01, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(message.into_bytes(), expected.concat());
    }

    #[test]
    fn written_fields_are_read() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let text = vec![b'x'; length];
            let mut message = Message::default();
            message.integer(1, u64::MAX);
            message.nested(100, |nested| nested.extend(text.iter().copied()));
            let bytes = message.into_bytes();
            let read: Vec<_> = fields(&bytes).collect();
            assert_eq!(read, [(1, FieldValue::Integer(u64::MAX)), (100, FieldValue::Bytes(&text))]);
        }
    }

    #[test]
    fn malformed_messages_end() {
        for message in [
            &b"\x08"[..],
            b"\x12\x05ab",
            b"\x0b",
            &[0xff; 20],
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(fields(message).count(), 0, "{message:?}");
        }
    }
}
