//! What hyper reads from the bytes of a connection.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::rt::{Read, ReadBufCursor, Write};

use super::{Message, sorted_map, status_line};

/// Polls without progress after which there is none.
const IDLE_POLLS: usize = 8;

/// A connection from which the pieces come one by one, as soon as `may_begin`; then its end, as soon as `may_end`.
struct Pieces<I> {
    next: I,
    piece: Bytes,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    may_begin: Cell<bool>,
    may_end: Cell<bool>,
    /// Pieces and parts of bodies that have come.
    progress: Cell<usize>,
    written: RefCell<Vec<u8>>,
}

impl<I: Iterator<Item = Bytes> + Unpin> Read for Pieces<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.state.may_begin.get() {
            return Poll::Pending;
        }
        if this.piece.is_empty() {
            this.piece = this.next.next().unwrap_or_default();
        }
        if this.piece.is_empty() {
            return if this.state.may_end.get() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let length = this.piece.len().min(to.remaining());
        to.put_slice(&this.piece[..length]);
        this.piece.advance(length);
        this.state.progress.update(|count| count + 1);
        Poll::Ready(Ok(()))
    }
}

impl<I: Unpin> Write for Pieces<I> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.state.written.borrow_mut().extend_from_slice(bytes);
        // A server answers when it was asked.
        self.state.may_begin.set(true);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads the body that belongs to the last message.
async fn read_body(mut body: Incoming, messages: &RefCell<Vec<Message>>, state: &State) {
    while let Some(frame) = body.frame().await {
        state.progress.update(|count| count + 1);
        let Ok(frame) = frame else { return };
        let mut messages = messages.borrow_mut();
        let message = messages.last_mut().unwrap();
        if let Some(data) = frame.data_ref() {
            message.body.extend_from_slice(data);
        }
        if let Some(trailers) = frame.trailers_ref() {
            message.trailers = sorted_map(trailers);
        }
    }
    messages.borrow_mut().last_mut().unwrap().is_complete = true;
}

/// Reads requests until the end of the bytes or of the connection; counts `100 Continue` as well.
pub fn read_requests(pieces: impl Iterator<Item = Bytes> + Unpin) -> (Vec<Message>, usize) {
    let messages = Rc::new(RefCell::new(Vec::new()));
    let state = Rc::new(State::default());
    state.may_begin.set(true);
    state.may_end.set(true);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (messages, state) = (Rc::clone(&messages), Rc::clone(&state));
        async move {
            let (head, body) = request.into_parts();
            messages.borrow_mut().push(Message {
                start: format!("{} {} {:?}", head.method, head.uri, head.version),
                lines: sorted_map(&head.headers),
                ..Message::default()
            });
            read_body(body, &messages, &state).await;
            let mut response = Response::new(Empty::<Bytes>::new());
            // A success would end HTTP behind a CONNECT.
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(response)
        }
    });
    let io = Pieces { next: pieces, piece: Bytes::new(), state: Rc::clone(&state) };
    let mut server = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(server.half_close(true).serve_connection(io, service));
    let mut context = Context::from_waker(Waker::noop());
    let mut idle = 0;
    while idle < IDLE_POLLS {
        let before = state.progress.get();
        if connection.as_mut().poll(&mut context).is_ready() {
            let count = count(&state.written.borrow(), b"HTTP/1.1 100 Continue\r\n");
            return (messages.take(), count);
        }
        idle = if state.progress.get() > before { 0 } else { idle + 1 };
    }
    panic!("the connection does not come to an end: {messages:?}");
}

/// Reads the response to a request with this method; says whether the connection could be used again before it ended.
pub fn read_response(method: &Method, pieces: impl Iterator<Item = Bytes> + Unpin) -> (Vec<Message>, bool) {
    let messages = RefCell::new(Vec::new());
    let state = Rc::new(State::default());
    let mut context = Context::from_waker(Waker::noop());
    let io = Pieces { next: pieces, piece: Bytes::new(), state: Rc::clone(&state) };
    let handshake = pin!(hyper::client::conn::http1::handshake(io));
    let Poll::Ready(Ok((mut sender, connection))) = handshake.poll(&mut context) else {
        panic!("a connection begins without its peer");
    };
    let mut connection = pin!(connection);
    let request = Request::builder().method(method).uri("/").header("host", "a");
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
    let mut exchange = pin!(async {
        let Ok(response) = response.await else { return };
        let (head, body) = response.into_parts();
        let reason = head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let usual = head.status.canonical_reason().unwrap_or_default().as_bytes();
        messages.borrow_mut().push(Message {
            start: status_line(head.status.as_u16(), reason.unwrap_or(usual), head.version),
            lines: sorted_map(&head.headers),
            ..Message::default()
        });
        read_body(body, &messages, &state).await;
    });
    let (mut is_over, mut is_done, mut is_reusable, mut idle) = (false, false, false, 0);
    while idle < IDLE_POLLS && !(is_over && is_done) {
        let before = state.progress.get();
        is_done = is_done || exchange.as_mut().poll(&mut context).is_ready();
        is_over = is_over || connection.as_mut().poll(&mut context).is_ready();
        idle = if state.progress.get() > before { 0 } else { idle + 1 };
        if idle == IDLE_POLLS && !state.may_end.get() {
            is_reusable = is_done && sender.is_ready();
            state.may_end.set(true);
            idle = 0;
        }
    }
    (messages.take(), is_reusable)
}

fn count(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
}
