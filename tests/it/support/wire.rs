//! HTTP/1.1 over a socket, for clients and for servers.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use super::message::field;
use super::{Message, patience};

/// A connection, with the bytes that are read but not parsed yet.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    /// A connection over this stream, which gets [`patience`] as its timeouts.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.set_write_timeout(Some(patience())).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// The stream itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    /// Sends bytes, unless the connection is closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Closes the sending side.
    pub fn finish(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Waits until the other side closes the connection, without any further bytes.
    #[track_caller]
    pub fn expect_close(&mut self) {
        assert!(self.buffer.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.buffer));
        match self.fill() {
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Ok(true) => panic!("it sent {:?}", String::from_utf8_lossy(&self.buffer)),
            Err(error) => panic!("it did not close: {error}"),
        }
    }

    /// All bytes until the other side closes the connection.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while self.fill().unwrap_or(false) {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads a request; `None` when the connection has ended before one.
    pub fn read_request(&mut self) -> io::Result<Option<Message>> {
        let Some(mut request) = self.read_head()? else { return Ok(None) };
        if is_chunked(&request) {
            self.read_chunks(&mut request)?;
        } else if let Some(length) = length(&request) {
            request.body = self.take(length)?;
        }
        Ok(Some(request))
    }

    /// Reads the final response to a request, and the interim ones before it.
    pub fn read_response(&mut self, method: &str) -> io::Result<Message> {
        let mut interim = Vec::new();
        loop {
            let response = self.read_head()?.ok_or(ErrorKind::UnexpectedEof)?;
            if response.status() < 200 && response.status() != 101 {
                interim.push(response.start);
                continue;
            }
            let mut response = Message { interim, ..response };
            self.read_response_body(&mut response, method)?;
            return Ok(response);
        }
    }

    /// Reads the body of a response.
    pub fn read_response_body(&mut self, response: &mut Message, method: &str) -> io::Result<()> {
        let has_none = method == "HEAD" || matches!(response.status(), 101 | 204 | 304);
        if has_none {
            return Ok(());
        }
        if is_chunked(response) {
            return self.read_chunks(response);
        }
        if let Some(length) = length(response) {
            response.body = self.take(length)?;
        } else {
            while self.fill()? {}
            response.body = std::mem::take(&mut self.buffer);
        }
        Ok(())
    }

    /// Reads a head; `None` when the connection has ended before its first byte.
    pub fn read_head(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(Some(Message::head(&String::from_utf8_lossy(&head[..end]))));
            }
            if !self.fill()? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Reads exactly `length` bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if !self.fill()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads the next chunk; an empty one is the last.
    pub fn read_chunk(&mut self) -> io::Result<Vec<u8>> {
        let line = self.read_line()?;
        let size = line.split(';').next().unwrap_or("");
        let size =
            usize::from_str_radix(size, 16).map_err(|_| io::Error::other(format!("chunk {line:?}")))?;
        let chunk = self.take(size)?;
        if size > 0 && self.take(2)? != b"\r\n" {
            return Err(io::Error::other("a chunk without its end"));
        }
        Ok(chunk)
    }

    /// Reads the fields after the last chunk.
    pub fn read_trailers(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut trailers = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.push(field(&line));
        }
    }

    fn read_chunks(&mut self, message: &mut Message) -> io::Result<()> {
        loop {
            let chunk = self.read_chunk()?;
            if chunk.is_empty() {
                message.trailers = self.read_trailers()?;
                return Ok(());
            }
            message.body.extend(chunk);
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads available bytes; false at EOF.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = vec![0; 64 * 1024];
        let count = loop {
            match self.stream.read(&mut bytes) {
                // When the machine was suspended, reads with a timeout are not restarted.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffer.extend_from_slice(&bytes[..count]);
        Ok(count > 0)
    }
}

fn is_chunked(message: &Message) -> bool {
    message.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

fn length(message: &Message) -> Option<usize> {
    message.header("content-length").map(|length| length.parse().unwrap())
}
