//! HTTP/2 frame by frame, for clients that break its rules.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::patience;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// The flag `END_STREAM` of DATA and HEADERS, and ACK of SETTINGS and PING.
pub const END_STREAM: u8 = 1;
/// The flag of a header block's last frame.
pub const END_HEADERS: u8 = 4;

/// A frame (RFC 9113 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection that sends nothing on its own.
#[derive(Debug)]
pub struct Frames(Channel);

#[derive(Debug)]
enum Channel {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A header block in which nothing is compressed (RFC 7541 §6.2.2); names and values below 127 bytes, or the length
/// in two bytes more.
pub fn block<T: AsRef<[u8]>>(fields: &[(T, T)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            if let Some(rest) = text.len().checked_sub(127) {
                assert!(rest < 1 << 14);
                let low = u8::try_from(rest & 0x7f).unwrap() | 0x80;
                block.extend([127, low, u8::try_from(rest >> 7).unwrap()]);
            } else {
                block.push(u8::try_from(text.len()).unwrap());
            }
            block.extend(text);
        }
    }
    block
}

impl Frames {
    /// Connects, and sends nothing.
    #[track_caller]
    pub fn silent(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect_timeout(&address, patience()).unwrap())
    }

    /// A connection over this stream, which gets [`patience`] as its timeouts.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.set_write_timeout(Some(patience())).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(Channel::Plain(stream))
    }

    /// The same over TLS, with HTTP/2 negotiated by ALPN.
    #[track_caller]
    pub fn over_tls(stream: TcpStream, config: &ClientConfig) -> Self {
        let Self(Channel::Plain(mut stream)) = Self::over(stream) else { unreachable!() };
        let mut config = config.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("a.test").unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream).unwrap();
        }
        Self(Channel::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// Connects, with these settings: pairs of identifier and value.
    #[track_caller]
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::silent(address).begin(settings)
    }

    /// Sends the preface and SETTINGS.
    #[track_caller]
    pub fn begin(self, settings: &[(u16, u32)]) -> Self {
        self.try_begin(settings).unwrap()
    }

    /// The same, unless the connection is closed.
    pub fn try_begin(mut self, settings: &[(u16, u32)]) -> io::Result<Self> {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat())
            .collect();
        self.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        self.try_send(SETTINGS, 0, 0, &payload)?;
        Ok(self)
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Channel::Plain(stream) => stream.write_all(bytes),
            Channel::Tls(stream) => stream.write_all(bytes),
        }
    }

    /// Sends a frame, unless the connection is closed.
    pub fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.raw(&frame(kind, flags, stream, payload))
    }

    /// Sends a frame.
    #[track_caller]
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_send(kind, flags, stream, payload).unwrap();
    }

    /// Resets a stream with CANCEL.
    #[track_caller]
    pub fn cancel(&mut self, stream: u32) {
        self.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    }

    /// Sends a GET request without a body.
    #[track_caller]
    pub fn get(&mut self, stream: u32, path: &str) {
        let head = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block(&head));
    }

    /// Whether the other side closes the connection; ignores what it sends before.
    pub fn ends(&mut self) -> bool {
        loop {
            match self.read_exact(&mut [0]) {
                Ok(()) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match &mut self.0 {
            Channel::Plain(stream) => stream.read_exact(bytes),
            Channel::Tls(stream) => stream.read_exact(bytes),
        }
    }

    /// The next frame; none at the end of the connection.
    pub fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read_exact(&mut head).ok()?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut payload = vec![0; usize::try_from(number(&head[..3])).unwrap()];
        self.read_exact(&mut payload).ok()?;
        Some(Frame { kind: head[3], flags: head[4], stream: number(&head[5..]) & 0x7fff_ffff, payload })
    }

    /// The next frame of this kind; skips others. `None` at the end of the connection.
    pub fn find(&mut self, kind: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.read()).find(|frame| frame.kind == kind)
    }

    /// The status code of the response, or the error code of a reset stream; `None` at the end of the connection.
    pub fn status(&mut self, stream: u32) -> Option<Result<u16, u32>> {
        loop {
            let frame = self.read()?;
            match frame.kind {
                HEADERS if frame.stream == stream => return Some(Ok(status(&frame.payload))),
                RST_STREAM if frame.stream == stream => {
                    return Some(Err(u32::from_be_bytes(frame.payload.try_into().unwrap())));
                }
                _ => {}
            }
        }
    }

    /// All frames until the other side closes the connection.
    pub fn read_to_close(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.read()).collect()
    }

    /// The error code of the last GOAWAY before the end of the connection, if there is one.
    pub fn end(&mut self) -> Option<u32> {
        let frames = self.read_to_close();
        let goaway = frames.iter().rev().find(|frame| frame.kind == GOAWAY)?;
        Some(u32::from_be_bytes(goaway.payload[4..8].try_into().unwrap()))
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The status at the beginning of a header block (RFC 7541 appendix A and B).
fn status(block: &[u8]) -> u16 {
    match block {
        [indexed, ..] if indexed & 0x80 != 0 => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        // Not in the table: its name is, and its value is compressed digit by digit.
        [_, length, value @ ..] => {
            assert_eq!(length & 0x80, 0x80, "a status without compression: {block:?}");
            let bits = value.iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
            let mut at = 32;
            let mut digit = || {
                let short = u16::try_from(bits >> (at - 5) & 0x1f).unwrap();
                at -= if short <= 2 { 5 } else { 6 };
                if short <= 2 { short } else { u16::try_from(bits >> at & 0x3f).unwrap() - 0x16 }
            };
            digit() * 100 + digit() * 10 + digit()
        }
        _ => panic!("no status: {block:?}"),
    }
}
