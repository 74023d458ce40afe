//! Decodes bodies.

use bytes::BytesMut;

use super::chunked::ChunkedDecoder;
use super::decoded::{BodyFault, Decoded};
use super::parse::Framing;

/// Decodes a body with any framing.
#[derive(Clone, Debug)]
pub struct BodyDecoder(State);

#[derive(Clone, Debug)]
enum State {
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    End,
}

impl BodyDecoder {
    /// A decoder for the body of a request.
    #[must_use]
    pub fn for_request(framing: Framing) -> Self {
        Self::new(framing, false)
    }

    /// A decoder for the body of a response.
    #[must_use]
    pub fn for_response(framing: Framing) -> Self {
        Self::new(framing, true)
    }

    fn new(framing: Framing, is_response: bool) -> Self {
        Self(match framing {
            Framing::Empty | Framing::Length(0) => State::End,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(ChunkedDecoder::new(is_response)),
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Takes the next part out of the buffer, which may have the data of many chunks; none if more bytes are needed. After the
    /// end of the body every call returns the end again, without trailers. Fails when the body is malformed. The connection can't be
    /// used any more.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Decoded>, BodyFault> {
        match &mut self.0 {
            State::End => Ok(Some(Decoded::End(None))),
            State::Chunked(chunked) => chunked.decode(buffer),
            _ if buffer.is_empty() => Ok(None),
            State::UntilClose => Ok(Some(Decoded::Data(buffer.split().freeze()))),
            State::Length(remaining) => {
                let taken = usize::try_from(*remaining).unwrap_or(usize::MAX).min(buffer.len());
                *remaining -= taken as u64;
                if *remaining == 0 {
                    self.0 = State::End;
                }
                Ok(Some(Decoded::Data(buffer.split_to(taken).freeze())))
            }
        }
    }

    /// Adds credit for the lines of chunks, in bytes. These lines carry no data, so a body may have only as many bytes of them
    /// as its data has earned, and a few more.
    pub fn earn(&mut self, credit: u64) {
        if let State::Chunked(chunked) = &mut self.0 {
            chunked.earn(credit);
        }
    }

    /// Ends the body because the connection was closed. Fails when the body is incomplete.
    pub fn finish(&mut self) -> Result<(), BodyFault> {
        match self.0 {
            State::UntilClose => self.0 = State::End,
            State::End => {}
            _ if self.is_end() => {}
            _ => return Err(BodyFault::Incomplete),
        }
        Ok(())
    }

    /// Whether the end of the body was reached.
    #[must_use]
    pub fn is_end(&self) -> bool {
        match &self.0 {
            State::End => true,
            State::Chunked(chunked) => chunked.is_end(),
            State::Length(_) | State::UntilClose => false,
        }
    }

    /// Whether the connection has to close after the body, since its end is ambiguous.
    #[must_use]
    pub fn must_close(&self) -> bool {
        match &self.0 {
            State::Chunked(chunked) => chunked.must_close(),
            State::UntilClose => true,
            State::Length(_) | State::End => false,
        }
    }

    /// Bytes of the body that remain, if that is known.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match &self.0 {
            State::Length(remaining) => Some(*remaining),
            State::End => Some(0),
            State::Chunked(chunked) => chunked.is_end().then_some(0),
            State::UntilClose => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn data(text: &'static str) -> Decoded {
        Decoded::Data(Bytes::from_static(text.as_bytes()))
    }

    const END: Result<Option<Decoded>, BodyFault> = Ok(Some(Decoded::End(None)));

    #[test]
    fn a_body_with_a_length_leaves_what_follows_it() {
        let (mut decoder, mut buffer) = (BodyDecoder::for_request(Framing::Length(5)), BytesMut::new());
        assert_eq!(decoder.decode(&mut buffer), Ok(None));
        buffer.extend_from_slice(b"he");
        assert_eq!((decoder.decode(&mut buffer), decoder.remaining()), (Ok(Some(data("he"))), Some(3)));
        assert_eq!((decoder.decode(&mut buffer), decoder.is_end()), (Ok(None), false));
        assert_eq!(decoder.finish(), Err(BodyFault::Incomplete));
        buffer.extend_from_slice(b"lloGET");
        assert_eq!((decoder.decode(&mut buffer), decoder.remaining()), (Ok(Some(data("llo"))), Some(0)));
        assert!(decoder.is_end() && !decoder.must_close());
        assert_eq!((decoder.decode(&mut buffer), decoder.decode(&mut buffer)), (END, END));
        assert_eq!((&buffer[..], decoder.finish()), (&b"GET"[..], Ok(())));
    }

    #[test]
    fn an_empty_body_consumes_nothing() {
        for framing in [Framing::Empty, Framing::Length(0)] {
            let (mut decoder, mut buffer) = (BodyDecoder::for_response(framing), BytesMut::from("GET"));
            assert!(decoder.is_end() && !decoder.must_close() && decoder.remaining() == Some(0));
            assert_eq!((decoder.decode(&mut buffer), buffer.len(), decoder.finish()), (END, 3, Ok(())));
        }
    }

    #[test]
    fn a_body_until_close_ends_with_the_connection() {
        let (mut decoder, mut buffer) =
            (BodyDecoder::for_response(Framing::UntilClose), BytesMut::from("hi"));
        assert_eq!(
            (decoder.decode(&mut buffer), decoder.decode(&mut buffer)),
            (Ok(Some(data("hi"))), Ok(None))
        );
        assert!(!decoder.is_end() && decoder.must_close() && decoder.remaining().is_none());
        assert_eq!((decoder.finish(), decoder.decode(&mut buffer)), (Ok(()), END));
        assert!(decoder.is_end());
    }

    #[test]
    fn a_chunked_body_is_incomplete_without_its_last_chunk() {
        for (text, end) in [
            ("1\r\nx\r\n0\r\n\r\n", Ok(())),
            ("1\r\nx\r\n0\r\n\r", Err(BodyFault::Incomplete)),
            ("1\r\nx\r\n0\r\nX: y\r\n", Err(BodyFault::Incomplete)),
            ("1\r\nx", Err(BodyFault::Incomplete)),
        ] {
            let (mut decoder, mut buffer) =
                (BodyDecoder::for_request(Framing::Chunked), BytesMut::from(text));
            assert_eq!(decoder.remaining(), None);
            assert_eq!(decoder.decode(&mut buffer), Ok(Some(data("x"))));
            let next = decoder.decode(&mut buffer);
            assert_eq!(next, if end.is_ok() { END } else { Ok(None) }, "{text:?}");
            assert_eq!((decoder.is_end(), decoder.finish()), (end.is_ok(), end), "{text:?}");
        }
    }
}
