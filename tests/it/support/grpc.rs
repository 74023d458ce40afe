//! gRPC by its library, as a client and as a server. Messages are bytes, so that nothing has to be generated.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::{self, StreamExt as _};
use tonic::codegen::{BoxFuture, BoxStream, Service};
use tonic::metadata::MetadataMap;
use tonic::server::StreamingService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};

use super::patience;

/// The largest message that either side takes.
const MAX_MESSAGE: usize = 64 << 20;

/// Messages as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buf.remaining();
        Ok(Some(buf.copy_to_bytes(length)))
    }
}

/// A server for the calls of [`answer`].
#[derive(Debug)]
pub struct GrpcServer {
    address: SocketAddr,
    scheme: &'static str,
    seen: Seen,
}

/// What a server has received.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    open: AtomicUsize,
    metadata: Mutex<Vec<MetadataMap>>,
    connections: Mutex<HashSet<SocketAddr>>,
}

/// A call that is open until this is dropped.
struct Open(Seen);

impl GrpcServer {
    /// Starts one on the runtime of the caller, over TLS if that is given.
    pub fn start(tls: Option<ServerTlsConfig>) -> Self {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = incoming.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let seen = Seen::default();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        tokio::spawn(server.serve_with_incoming(seen.clone(), incoming));
        Self { address, scheme, seen }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The number of open calls.
    pub fn open(&self) -> usize {
        self.seen.0.open.load(Ordering::SeqCst)
    }

    /// What came with the last call.
    pub fn metadata(&self) -> MetadataMap {
        self.seen.0.metadata.lock().unwrap().last().unwrap().clone()
    }

    /// The connections over which it was called.
    pub fn connections(&self) -> usize {
        self.seen.0.connections.lock().unwrap().len()
    }
}

impl Service<http::Request<Body>> for Seen {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let asked = Asked { method, seen: self.clone() };
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw).max_decoding_message_size(MAX_MESSAGE);
            Ok(grpc.streaming(asked, request).await)
        })
    }
}

struct Asked {
    method: String,
    seen: Seen,
}

impl StreamingService<Bytes> for Asked {
    type Response = Bytes;
    type ResponseStream = BoxStream<Bytes>;
    type Future = BoxFuture<Response<BoxStream<Bytes>>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let notes = &self.seen.0;
        notes.open.fetch_add(1, Ordering::SeqCst);
        notes.metadata.lock().unwrap().push(request.metadata().clone());
        notes.connections.lock().unwrap().extend(request.remote_addr());
        Box::pin(answer(self.method.clone(), Open(self.seen.clone()), request))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Over the wire all kinds of calls are streams of messages, of which some have one only.
async fn answer(
    method: String,
    open: Open,
    request: Request<Streaming<Bytes>>,
) -> Result<Response<BoxStream<Bytes>>, Status> {
    let (metadata, _, mut heard) = request.into_parts();
    let said: BoxStream<Bytes> = match &*method {
        // Echoes each message at once.
        "Echo" | "Held" => Box::pin(heard.map(move |message| {
            let _held = &open;
            message
        })),
        // So many messages of so many bytes each.
        "Count" => {
            let asked = heard.message().await?.unwrap_or_default();
            let numbers = str::from_utf8(&asked).unwrap().split(' ').map(|number| number.parse().unwrap());
            let numbers: Vec<usize> = numbers.collect();
            let message = Bytes::from(vec![b'x'; numbers[1]]);
            Box::pin(tokio_stream::iter((0..numbers[0]).map(move |_| {
                let _held = &open;
                Ok(message.clone())
            })))
        }
        // The bytes of all messages.
        "Sum" => {
            let mut sum = 0;
            while let Some(message) = heard.message().await? {
                sum += message.len();
            }
            Box::pin(tokio_stream::once(Ok(sum.to_string().into())))
        }
        // Nothing but a status, with all that it can have.
        "Fail" => {
            let details = Bytes::from_static(b"\0why");
            let status = Code::NotFound;
            return Err(Status::with_details_and_metadata(status, "no such thing: ü", details, metadata));
        }
        // A message, and then a status.
        "Half" => {
            Box::pin(tokio_stream::iter([Ok("half".into()), Err(Status::data_loss("the rest is gone"))]))
        }
        _ => std::future::pending().await,
    };
    let mut response = Response::new(said);
    for name in ["x-word", "x-bytes-bin"] {
        if name.ends_with("-bin")
            && let Some(value) = metadata.get_bin(name)
        {
            response.metadata_mut().insert_bin(name, value.clone());
        } else if let Some(value) = metadata.get(name) {
            response.metadata_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

/// A client's connection.
#[derive(Clone, Debug)]
pub struct GrpcClient(Channel);

impl GrpcClient {
    /// Connects, over TLS if that is given.
    pub async fn connect(url: String, tls: Option<ClientTlsConfig>) -> Self {
        let mut endpoint = Endpoint::from_shared(url).unwrap();
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).unwrap();
        }
        Self(endpoint.connect().await.unwrap())
    }

    /// One message each way.
    pub async fn unary(&self, method: &str, message: impl Into<Bytes>) -> Result<Response<Bytes>, Status> {
        self.unary_with(method, Request::new(message.into())).await
    }

    /// The same with metadata.
    pub async fn unary_with(&self, method: &str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        within(self.grpc().await.unary(request, path(method), Raw)).await
    }

    /// One message there, and many back.
    pub async fn download(&self, method: &str, message: impl Into<Bytes>) -> Result<Heard, Status> {
        let request = Request::new(message.into());
        within(self.grpc().await.server_streaming(request, path(method), Raw)).await.map(Heard)
    }

    /// Many messages there, and one back.
    pub async fn upload(
        &self,
        method: &str,
        messages: impl tokio_stream::Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Bytes>, Status> {
        within(self.grpc().await.client_streaming(Request::new(messages), path(method), Raw)).await
    }

    /// Messages both ways.
    pub async fn talk(
        &self,
        method: &str,
        messages: impl tokio_stream::Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Heard, Status> {
        within(self.grpc().await.streaming(Request::new(messages), path(method), Raw)).await.map(Heard)
    }

    async fn grpc(&self) -> tonic::client::Grpc<Channel> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone()).max_decoding_message_size(MAX_MESSAGE);
        timeout(patience(), grpc.ready()).await.expect("a connection in time").unwrap();
        grpc
    }
}

/// What is heard of a call.
#[derive(Debug)]
pub struct Heard(Response<Streaming<Bytes>>);

impl Heard {
    /// The next message, or the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        within(self.0.get_mut().message()).await
    }

    /// All messages that are left.
    pub async fn rest(&mut self) -> Result<Vec<Bytes>, Status> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await? {
            all.push(message);
        }
        Ok(all)
    }
}

/// The path of a method, which is of the test's service unless it begins with a slash.
fn path(method: &str) -> http::uri::PathAndQuery {
    let whole = if method.starts_with('/') { method.to_owned() } else { format!("/test.Calls/{method}") };
    whole.parse().unwrap()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(patience(), work).await.expect("an answer in time")
}
