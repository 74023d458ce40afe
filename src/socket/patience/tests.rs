//! Limits of time over a socket that goes on and on.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;
use crate::socket::Timed;
use crate::time::monotonic;

const SECOND: Duration = Duration::from_secs(1);

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn the_limit_ends_what_goes_on_and_on() {
    let (mut near, far) = duplex(64);
    let patience = Patience::new(Reading::Unbounded, 60 * SECOND);
    let mut far = Timed::new(far, Rc::clone(&patience));
    let started = monotonic();
    patience.set_limit(Some(started + 10 * SECOND));
    let drip = async {
        for _ in 0..15 {
            near.write_all(b"x").await.unwrap();
            tokio::time::sleep(SECOND).await;
        }
    };
    let read = async {
        let mut sink = Vec::new();
        (kind(far.read_to_end(&mut sink).await), sink.len(), monotonic() - started)
    };
    let ((), end) = tokio::join!(drip, read);
    assert_eq!(end, (Some(io::ErrorKind::TimedOut), 10, 10 * SECOND));
    assert_eq!(kind(far.write_all(&[0; 65]).await), Some(io::ErrorKind::TimedOut));
    patience.set_limit(None);
    assert!(far.read_u8().await.is_ok());
}
