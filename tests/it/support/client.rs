//! Clients: a bare socket, and curl.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use super::{Message, PATIENCE, Wire};

/// A client's connection.
#[derive(Debug)]
pub struct Client(Wire);

impl Client {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self(Wire::over(TcpStream::connect_timeout(&address, PATIENCE).unwrap()))
    }

    /// Connects from a certain address, such as another one of the loopback network.
    #[track_caller]
    pub fn connect_from(source: &str, address: SocketAddr) -> Self {
        Self(Wire::over(connect_from(source, address).unwrap()))
    }

    /// Reads the response to a request that is not HEAD.
    #[track_caller]
    pub fn read(&mut self) -> Message {
        self.read_response("GET").unwrap()
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub fn ask(&mut self, request: &str) -> Message {
        self.send(request);
        let method = request.split(' ').next().unwrap_or("");
        self.read_response(method).unwrap()
    }

    /// Asks with GET for `target`; `headers` are whole lines.
    #[track_caller]
    pub fn get(&mut self, target: &str, headers: &[&str]) -> Message {
        let mut request = format!("GET {target} HTTP/1.1\r\n");
        if !headers.iter().any(|line| line.to_lowercase().starts_with("host:")) {
            request.push_str("Host: localhost\r\n");
        }
        for line in headers {
            request.push_str(line);
            request.push_str("\r\n");
        }
        self.ask(&(request + "\r\n"))
    }
}

/// A connection from a certain address, such as another one of the loopback network.
pub fn connect_from(source: &str, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let source: IpAddr = source.parse().unwrap();
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&address.into(), PATIENCE)?;
    Ok(socket.into())
}

impl Deref for Client {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.0
    }
}

/// Asks with GET over a connection of its own.
#[track_caller]
pub fn get(address: SocketAddr, target: &str, headers: &[&str]) -> Message {
    Client::connect(address).get(target, headers)
}

/// Runs curl: the status, the final response's headers and its body.
#[track_caller]
pub fn curl(arguments: &[&str]) -> (u16, Message, String) {
    let output = Command::new("curl")
        // Neither the user's settings nor a proxy of the surroundings may change what is sent.
        .args(["-q", "--silent", "--show-error", "--include", "--noproxy", "*", "--max-time", "10"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    let mut message = Message::parse(&output.stdout);
    while message.status() < 200 {
        message = Message::parse(&message.body);
    }
    let body = message.text().to_owned();
    (message.status(), message, body)
}
