//! A client that speaks HTTP/2 as it should.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::PATIENCE;

/// A connection.
#[derive(Debug)]
pub struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// What comes back.
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

    /// Asks, with a body or none, and reads the answer to its end.
    #[track_caller]
    pub fn ask(&self, request: Request<()>, body: &[u8]) -> Answer {
        self.try_ask(request, body).unwrap()
    }

    /// The same, unless the stream or the connection breaks.
    pub fn try_ask(&self, request: Request<()>, body: &[u8]) -> Result<Answer, h2::Error> {
        self.block_on(async |sender| {
            let (response, mut stream) = sender.send_request(request, body.is_empty())?;
            if !body.is_empty() {
                stream.send_data(Bytes::copy_from_slice(body), true)?;
            }
            read(response.await?).await
        })
    }

    /// Does something with the connection, within the time that a test may take.
    #[track_caller]
    pub fn block_on<T>(&self, work: impl AsyncFnOnce(&mut SendRequest<Bytes>) -> T) -> T {
        let work = async {
            let mut sender = self.sender.clone().ready().await.expect("a connection");
            work(&mut sender).await
        };
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .expect("an answer in time")
    }

    /// Waits for the connection's end.
    #[track_caller]
    pub fn end(self) -> Result<(), h2::Error> {
        drop(self.sender);
        let end = async { tokio::time::timeout(PATIENCE, self.connection).await };
        self.runtime.block_on(end).expect("an end in time").unwrap()
    }
}

/// Reads an answer to its end.
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
