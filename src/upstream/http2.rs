//! HTTP/2 connections to a server, each shared by many requests.
//!
//! Unlike an HTTP/1.1 connection, such a connection has a task of its own, since no request can drive the others. Each
//! request bounds its own waits.

mod connection;
mod convert;
mod open;
mod pool;
mod stream;
mod wait;

pub(super) use self::pool::Http2Pool;
pub(super) use self::stream::Http2Stream;
