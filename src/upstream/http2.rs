//! HTTP/2 connections to a server, each shared by many requests.
//!
//! Unlike an HTTP/1.1 connection, a separate task drives such a connection, since no request can drive the others. Each
//! request has timeouts of its own.

mod cancel;
mod connection;
mod convert;
mod open;
mod pool;
mod stream;
mod wait;

pub(super) use self::pool::Http2Pool;
pub(super) use self::stream::Http2Stream;
