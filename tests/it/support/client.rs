//! HTTP/1.1 clients: a socket, and curl.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};

use socket2::{Domain, Socket, Type};

use super::{Message, Wire, command, patience};

/// A client's connection.
#[derive(Debug)]
pub struct Client(Wire);

impl Client {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self(Wire::over(TcpStream::connect_timeout(&address, patience()).unwrap()))
    }

    /// Connects from this address of the loopback network.
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

    /// Sends a GET request for `target`, and reads its response; `headers` are whole lines.
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

/// A connection from this address of the loopback network.
pub fn connect_from(source: &str, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let source: IpAddr = source.parse().unwrap();
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&address.into(), patience())?;
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

/// Sends a GET request over a new connection, and reads its response.
#[track_caller]
pub fn get(address: SocketAddr, target: &str, headers: &[&str]) -> Message {
    Client::connect(address).get(target, headers)
}

/// Runs curl, and returns the status code, the head and the body of the final response.
#[track_caller]
pub fn curl(arguments: &[&str]) -> (u16, Message, String) {
    let output = command("curl")
        // Without the user's settings and proxies of the environment.
        .args(["-q", "--silent", "--show-error", "--include", "--noproxy", "*", "--max-time"])
        .arg(patience().as_secs().to_string())
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    let mut message = Message::parse(&output.stdout);
    while message.status() < 200 {
        message = Message::parse(&message.body);
    }
    let body = message.text().to_owned();
    (message.status(), message, body)
}
