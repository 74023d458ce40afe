//! A TLS client.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::crypto::SupportedKxGroup;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, StreamOwned};

use super::{Message, patience};

/// A client's connection over TLS.
#[derive(Debug)]
pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Connects, and asks for a certificate of this name.
    pub fn connect(config: &Arc<ClientConfig>, name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&address, patience())?, config, name)
    }

    /// Begins to speak TLS over a connection.
    pub fn over(mut stream: TcpStream, config: &Arc<ClientConfig>, name: &str) -> io::Result<Self> {
        stream.set_read_timeout(Some(patience()))?;
        stream.set_write_timeout(Some(patience()))?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Self(StreamOwned::new(session, stream)))
    }

    /// Whether the handshake took up an earlier one.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The certificate that the server has shown.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// The key exchange that was agreed on.
    pub fn key_exchange(&self) -> Option<NamedGroup> {
        self.0.conn.negotiated_key_exchange_group().map(SupportedKxGroup::name)
    }

    /// The protocol that was agreed on.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.0.conn.alpn_protocol()
    }

    /// The stream itself.
    pub fn stream(&mut self) -> &mut StreamOwned<ClientConnection, TcpStream> {
        &mut self.0
    }

    /// Sends a GET request, and reads the response, which must have a length.
    pub fn get(&mut self, path: &str) -> io::Result<Message> {
        self.ask(path)?;
        self.read()
    }

    /// Asks for a path.
    pub fn ask(&mut self, path: &str) -> io::Result<()> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }

    /// Asks for a path twice, in one record.
    pub fn ask_twice(&mut self, path: &str) -> io::Result<()> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(2).as_bytes())
    }

    /// Waits for `close_notify` of the other side; false if it sends data.
    pub fn is_ended(&mut self) -> io::Result<bool> {
        Ok(self.0.read(&mut [0])? == 0)
    }

    /// Sends `close_notify`.
    pub fn finish(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()?;
        self.0.sock.shutdown(Shutdown::Write)
    }

    /// Reads a response, which must have a length.
    pub fn read(&mut self) -> io::Result<Message> {
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        let mut message = Message::parse(&answer);
        let length = message.header("content-length").map_or(0, |length| length.parse().unwrap());
        message.body = vec![0; length];
        self.0.read_exact(&mut message.body)?;
        Ok(message)
    }
}
