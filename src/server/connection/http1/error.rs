//! Why a connection over HTTP/1.1 ends before a response is complete.

use crate::upstream::BodyError;

/// Why a request or its response failed in a way that ends the connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("client disconnected before its response")]
    Disconnected,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("response body failed: {0}")]
    Response(#[from] BodyError),
    #[error("response body is shorter than its Content-Length")]
    Incomplete,
    #[error("its upstream connection was given to another client")]
    Reclaimed,
}
