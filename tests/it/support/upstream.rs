//! Upstream servers.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use super::{Message, Wire, patience};

/// A server, each of whose connections has a thread of its own.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
}

/// A connection from the proxy.
#[derive(Debug)]
pub struct Caller {
    wire: Wire,
    number: usize,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<Message>>,
    streams: Mutex<Vec<TcpStream>>,
    open: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Upstream {
    /// Responds to every request with its head, an empty line and its decoded body. The response is chunked if the request
    /// was, and has the same trailers.
    pub fn echo() -> Self {
        Self::scripted(|caller| {
            while let Ok(Some(request)) = caller.request() {
                let mut body = request.start.clone().into_bytes();
                for (name, value) in &request.headers {
                    body.extend_from_slice(format!("\r\n{name}: {value}").as_bytes());
                }
                body.extend_from_slice(b"\r\n\r\n");
                body.extend_from_slice(&request.body);
                let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
                if request.header("transfer-encoding").is_some() {
                    let announced = request.header("trailer");
                    answer.extend(
                        announced.map_or(String::new(), |names| format!("Trailer: {names}\r\n")).bytes(),
                    );
                    answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    // In two chunks, to test that chunks are joined.
                    for half in body.chunks(body.len().div_ceil(2)) {
                        answer.extend_from_slice(format!("{:x}\r\n", half.len()).as_bytes());
                        answer.extend_from_slice(half);
                        answer.extend_from_slice(b"\r\n");
                    }
                    answer.extend_from_slice(b"0\r\n");
                    for (name, value) in &request.trailers {
                        answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                    }
                    answer.extend_from_slice(b"\r\n");
                } else {
                    answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                    if !request.start.starts_with("HEAD ") {
                        answer.extend_from_slice(&body);
                    }
                }
                if caller.try_send(&answer).is_err() {
                    return;
                }
            }
        })
    }

    /// Sends this response to every request.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::scripted(move |caller| {
            while let Ok(Some(_)) = caller.request() {
                if caller.try_send(&answer).is_err() {
                    return;
                }
            }
        })
    }

    /// Sends this response to each request, but only after a message on the channel, or when that is closed.
    pub fn gated(response: impl Into<Vec<u8>>) -> (Self, Sender<()>) {
        let (response, (release, released)) = (response.into(), channel());
        let released = Mutex::new(released);
        let server = Self::scripted(move |caller| {
            while let Ok(Some(_)) = caller.request() {
                let _ = released.lock().unwrap().recv_timeout(patience());
                if caller.try_send(&response).is_err() {
                    return;
                }
            }
        });
        (server, release)
    }

    /// Runs `script` for every connection, and then closes the connection.
    pub fn scripted(script: impl Fn(&mut Caller) + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// The same on a socket that listens already.
    pub fn listening(listener: TcpListener, script: impl Fn(&mut Caller) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let (script, shared) = (Arc::new(script), Arc::clone(&state));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                if shared.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                shared.open.fetch_add(1, Ordering::SeqCst);
                let (script, state) = (Arc::clone(&script), Arc::clone(&shared));
                let mut caller = Caller { wire: Wire::over(stream), number, state };
                std::thread::spawn(move || script(&mut caller));
            }
        });
        Self { address, state }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The complete requests that it has received, in order.
    pub fn requests(&self) -> Vec<Message> {
        self.state.requests.lock().unwrap().clone()
    }

    /// How many complete requests it has received.
    pub fn received(&self) -> usize {
        self.state.requests.lock().unwrap().len()
    }

    /// How many connections it has had.
    pub fn connections(&self) -> usize {
        self.state.streams.lock().unwrap().len()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then returns.
        let _ = TcpStream::connect(self.address);
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Caller {
    /// Reads and records a request; `None` at the end of the connection.
    pub fn request(&mut self) -> io::Result<Option<Message>> {
        let request = self.wire.read_request()?;
        self.state.requests.lock().unwrap().extend(request.clone());
        Ok(request)
    }

    /// The number of this connection, from 0.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // The list of streams would keep the socket open.
        let _ = self.wire.stream().shutdown(Shutdown::Both);
        self.state.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Deref for Caller {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Caller {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}
