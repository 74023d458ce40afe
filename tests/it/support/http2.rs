//! A client and a server that speak HTTP/2 correctly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::patience;

/// A client connection.
#[derive(Debug)]
pub struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<()>,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

impl Http2 {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, connection) = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            (sender, tokio::spawn(connection))
        });
        Self { runtime, sender, connection }
    }

    /// Sends a request, with a body unless that is empty, and reads the response.
    #[track_caller]
    pub fn ask(&self, request: Request<()>, body: &[u8]) -> Answer {
        self.try_ask(request, body).unwrap()
    }

    /// The same, unless the stream or the connection fails.
    pub fn try_ask(&self, request: Request<()>, body: &[u8]) -> Result<Answer, h2::Error> {
        self.block_on(async |sender| {
            let (response, mut stream) = sender.send_request(request, body.is_empty())?;
            if !body.is_empty() {
                stream.send_data(Bytes::copy_from_slice(body), true)?;
            }
            read(response.await?).await
        })
    }

    /// Uses the connection, within [`patience`].
    #[track_caller]
    pub fn block_on<T>(&self, work: impl AsyncFnOnce(&mut SendRequest<Bytes>) -> T) -> T {
        let work = async {
            let mut sender = self.sender.clone().ready().await.expect("a connection");
            work(&mut sender).await
        };
        self.runtime
            .block_on(async { tokio::time::timeout(patience(), work).await })
            .expect("a response in time")
    }

    /// Waits until the connection is closed.
    #[track_caller]
    pub fn end(self) -> Result<(), h2::Error> {
        drop(self.sender);
        let end = async { tokio::time::timeout(patience(), self.connection).await };
        self.runtime.block_on(end).expect("an end in time").unwrap()
    }
}

/// Reads a response to its end.
pub async fn read(response: Response<h2::RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend(data);
    }
    let trailers = stream.trailers().await?;
    Ok(Answer { response: Response::from_parts(head, ()), body, trailers })
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A server that speaks HTTP/2 in the clear.
pub struct Http2Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: Runtime,
}

/// A request, and the handle for its response.
pub type Asked = (Request<h2::RecvStream>, h2::server::SendResponse<Bytes>);

impl Http2Server {
    /// Runs `answer` for every request. Sends GOAWAY after `goaway_after` requests on a connection, if that is given.
    pub fn start<F>(
        builder: h2::server::Builder,
        goaway_after: Option<usize>,
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (Arc::new(answer), Arc::clone(&connections));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (answer, builder) = (Arc::clone(&answer), builder.clone());
                tokio::spawn(async move {
                    let Ok(mut connection) = builder.handshake(stream).await else { return };
                    let mut had = 0;
                    while let Some(Ok(asked)) = connection.accept().await {
                        tokio::spawn(answer(asked));
                        had += 1;
                        if Some(had) == goaway_after {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        Self { address, connections, _runtime: runtime }
    }

    /// Responds with the head of the request, an empty line and its body, and with its trailers.
    pub fn echo() -> Self {
        Self::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
            let (head, mut stream) = request.into_parts();
            let mut said = format!("{} {} {:?}", head.method, head.uri, head.version);
            for (name, value) in &head.headers {
                said += &["\r\n", name.as_str(), ": ", value.to_str().unwrap()].concat();
            }
            let mut body = Vec::new();
            while let Some(data) = stream.data().await {
                let Ok(data) = data else { return };
                stream.flow_control().release_capacity(data.len()).unwrap();
                body.extend(data);
            }
            let trailers = stream.trailers().await.unwrap();
            let mut out = respond.send_response(Response::new(()), false).unwrap();
            out.send_data((said + "\r\n\r\n").into(), false).unwrap();
            out.send_data(body.into(), trailers.is_none()).unwrap();
            if let Some(trailers) = trailers {
                out.send_trailers(trailers).unwrap();
            }
        })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The connections that it has had.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
