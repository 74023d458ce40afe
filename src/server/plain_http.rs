//! The response to plain HTTP on a listener for TLS, where browsers and curl would otherwise show an empty response.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n\
                        connection: close\r\n\r\nThis port expects TLS: begin the URL with https\n";
/// How long to wait for more of the request, since an early close would lose the response.
const LINGER: Duration = Duration::from_secs(1);

/// Whether the first byte of a connection is that of a method, and not of TLS. Waits for it.
pub(super) async fn is_first(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0].is_ascii_uppercase())
}

/// Responds, and reads until the client closes the connection. The caller bounds the time.
pub(super) async fn reject(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(RESPONSE.as_bytes()).await?;
    stream.shutdown().await?;
    let mut discarded = [0; 1024];
    while let Ok(Ok(1..)) = timeout(LINGER, stream.read(&mut discarded)).await {}
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_length_is_that_of_the_body() {
        let (head, body) = super::RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
