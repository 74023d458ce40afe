//! Sockets on a clock that the tests move.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::patience::REST_AFTER;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_no_longer_than_it_may() {
    let (mut near, far) = duplex(64);
    let patience = Patience::new(Reading::Each(SECOND), SECOND);
    let mut far = Timed::new(far, Rc::clone(&patience));
    for _ in 0..3 {
        tokio::time::advance(SECOND / 2).await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
    }
    let started = monotonic();
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
    assert_eq!(monotonic() - started, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_head_has_its_time_from_its_first_byte() {
    let (mut near, far) = duplex(64);
    let started = monotonic();
    let patience = Patience::new(Reading::HeadStartsBy(started + 60 * SECOND, 2 * SECOND), SECOND);
    let mut far = Timed::new(far, patience);
    let drip = async {
        tokio::time::sleep(30 * SECOND).await;
        for _ in 0..10 {
            near.write_all(b"x").await.unwrap();
            tokio::time::sleep(SECOND / 2).await;
        }
    };
    let read = async {
        let mut sink = Vec::new();
        let end = far.read_to_end(&mut sink).await;
        (kind(end), sink.len(), monotonic() - started)
    };
    let ((), (end, bytes, after)) = tokio::join!(drip, read);
    assert_eq!(end, Some(io::ErrorKind::TimedOut));
    assert!((4..=5).contains(&bytes), "{bytes}");
    assert_eq!(after, 32 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn nothing_owed_is_waited_for_without_end() {
    let (mut near, far) = duplex(64);
    let patience = Patience::new(Reading::Unbounded, SECOND);
    let mut far = Timed::new(far, patience);
    let late = async {
        tokio::time::sleep(100_000 * SECOND).await;
        near.write_all(b"x").await.unwrap();
    };
    let ((), byte) = tokio::join!(late, far.read_u8());
    assert_eq!(byte.unwrap(), b'x');
}

#[tokio::test(start_paused = true)]
async fn no_more_comes_before_an_answer_than_may() {
    let (mut near, far) = duplex(64);
    let patience = Patience::new(Reading::Unbounded, SECOND);
    let mut far = Timed::new(far, Rc::clone(&patience));
    patience.expect_answer(4);
    assert!(patience.is_unanswered());
    near.write_all(b"four").await.unwrap();
    assert_eq!(far.read_u32().await.unwrap(), u32::from_be_bytes(*b"four"));
    assert!(!patience.is_unanswered());
    near.write_all(b"5").await.unwrap();
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::InvalidData));
    patience.has_answer();
    near.write_all(b"6").await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'6');
}

/// Reads to the end, and says after how long that came.
async fn ends_after(far: &mut Timed<tokio::io::DuplexStream>) -> Duration {
    let started = monotonic();
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    monotonic() - started
}

#[tokio::test(start_paused = true)]
async fn a_client_may_close_its_sending_side_while_its_answer_is_under_way() {
    for (reading, is_starved, hidden) in [
        (Reading::Unbounded, false, HALF_CLOSED),
        (Reading::Each(60 * SECOND), false, HALF_CLOSED),
        (Reading::Each(60 * SECOND), true, Duration::ZERO),
        (Reading::UntilItEnds, false, Duration::ZERO),
        (Reading::Until(monotonic() + 60 * SECOND), false, Duration::ZERO),
    ] {
        let (mut near, far) = duplex(64);
        near.shutdown().await.unwrap();
        let patience = Patience::of_client(reading, SECOND);
        let mut far = Timed::new(far, Rc::clone(&patience));
        if is_starved {
            patience.starve();
        }
        assert_eq!(ends_after(&mut far).await, hidden, "{reading:?}");
        // To a server nothing is owed.
        let (mut near, far) = duplex(64);
        near.shutdown().await.unwrap();
        let mut far = Timed::new(far, Patience::new(reading, SECOND));
        assert_eq!(ends_after(&mut far).await, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_its_answer_is_there() {
    let (mut near, far) = duplex(64);
    near.shutdown().await.unwrap();
    let mut far = Timed::new(far, Patience::of_client(Reading::Unbounded, SECOND));
    for _ in 0..4 {
        let wait = tokio::time::timeout(SECOND, far.read_u8()).await;
        assert!(wait.is_err(), "{wait:?}");
        far.write_all(b"x").await.unwrap();
    }
    assert_eq!(ends_after(&mut far).await, HALF_CLOSED);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_still_sends_is_read_for_a_while() {
    for (is_unfinished, sends, after) in
        [(true, 3, 3 * SECOND + LINGER_SILENT), (true, 99, LINGER), (false, 9, Duration::ZERO)]
    {
        let (mut near, far) = duplex(64);
        let patience = Patience::of_client(Reading::Unbounded, SECOND);
        patience.set_unfinished(is_unfinished);
        let mut far = Timed::new(far, patience);
        let started = monotonic();
        let send = async {
            for _ in 0..sends {
                tokio::time::sleep(SECOND).await;
                if near.write_all(&[b'x'; 64]).await.is_err() {
                    return;
                }
            }
        };
        let close = async {
            far.shutdown().await.unwrap();
            let took = monotonic() - started;
            drop(far);
            took
        };
        let (took, ()) = tokio::join!(close, send);
        assert_eq!(took, after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_reads_fails() {
    let (_near, far) = duplex(4);
    let mut far = Timed::new(far, Patience::new(Reading::Unbounded, SECOND));
    assert_eq!(kind(far.write_all(&[0; 64]).await), Some(io::ErrorKind::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_has_taken_and_nobody_reads_fails_as_well() {
    let (_near, far) = duplex(4);
    let taken = tokio::io::BufWriter::new(far);
    let mut far = Timed::new(taken, Patience::new(Reading::Unbounded, SECOND));
    far.write_all(&[0; 64]).await.unwrap();
    assert_eq!(kind(far.flush().await), Some(io::ErrorKind::TimedOut));
    assert_eq!(kind(far.shutdown().await), Some(io::ErrorKind::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn what_is_read_ahead_is_read_again() {
    let (mut near, far) = duplex(64);
    let mut far = Timed::new(far, Patience::new(Reading::Each(SECOND), SECOND));
    for part in ["ab", "cd", "e"] {
        near.write_all(part.as_bytes()).await.unwrap();
        let wanted = part.as_bytes()[0];
        let ahead = std::future::poll_fn(|cx| {
            far.poll_ahead(cx, |bytes| bytes.contains(&wanted)).map_ok(<[u8]>::to_vec)
        });
        assert!(ahead.await.unwrap().ends_with(part.as_bytes()));
    }
    let late = std::future::poll_fn(|cx| far.poll_ahead(cx, |_| false).map_ok(<[u8]>::len)).await;
    assert_eq!(kind(late), Some(io::ErrorKind::TimedOut));
    drop(near);
    let mut all = String::new();
    far.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "abcde");
}

/// A client that has got its answer now, with this time for its next request.
fn answered(idle: Duration) -> (tokio::io::DuplexStream, Timed<tokio::io::DuplexStream>) {
    let (near, far) = duplex(64);
    let patience = Patience::of_client(Reading::Unbounded, idle);
    patience.await_next(monotonic(), idle, SECOND);
    (near, Timed::new(far, patience))
}

/// Reads until the connection rests, and says after how long it does.
async fn rests_after(far: &mut Timed<tokio::io::DuplexStream>) -> Duration {
    let started = monotonic();
    let mut bytes = [0; 8];
    std::future::poll_fn(|cx| {
        let read = Pin::new(&mut *far).poll_read(cx, &mut ReadBuf::new(&mut bytes));
        assert!(read.is_pending(), "{read:?}");
        if far.patience.rests() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    monotonic() - started
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_comes_to_rest_and_keeps_its_deadline() {
    for idle in [3, 60] {
        let (mut near, mut far) = answered(idle * SECOND);
        let patience = Rc::clone(&far.patience);
        let started = monotonic();
        assert_eq!(rests_after(&mut far).await, REST_AFTER);
        // Whoever used it closes it, and the other side does not hear of that.
        far.shutdown().await.unwrap();
        patience.stir();
        let heard = tokio::time::timeout(SECOND / 2, near.read_u8()).await;
        assert!(heard.is_err(), "{heard:?}");
        assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
        assert_eq!(monotonic() - started, idle * SECOND);
        far.shutdown().await.unwrap();
        assert_eq!(kind(near.read_u8().await), Some(io::ErrorKind::UnexpectedEof));
    }
}

#[tokio::test(start_paused = true)]
async fn each_answer_lets_it_rest_anew() {
    let (mut near, mut far) = answered(60 * SECOND);
    let patience = Rc::clone(&far.patience);
    for _ in 0..3 {
        assert_eq!(rests_after(&mut far).await, REST_AFTER);
        patience.stir();
        tokio::time::advance(5 * SECOND).await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        patience.set(Reading::Unbounded);
        patience.await_next(monotonic(), 60 * SECOND, SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_to_end_before_does_not_rest() {
    let (_near, mut far) = answered(60 * SECOND);
    let by = monotonic() + REST_AFTER / 2;
    far.patience.hasten(by);
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
    assert!(monotonic() == by && !far.patience.rests());
    let (_near, mut far) = answered(REST_AFTER);
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
    assert!(!far.patience.rests());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_has_begun_has_its_own_time_and_no_rest() {
    let (mut near, mut far) = answered(60 * SECOND);
    let patience = Rc::clone(&far.patience);
    tokio::time::advance(SECOND).await;
    near.write_all(b"x").await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'x');
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
    assert!(!patience.rests());
    // Also one that was read too early.
    let (_near, mut far) = answered(60 * SECOND);
    rests_after(&mut far).await;
    let patience = Rc::clone(&far.patience);
    patience.stir();
    far.put_back(Bytes::from_static(b"ab"));
    let started = monotonic();
    assert_eq!(far.read_u16().await.unwrap(), u16::from_be_bytes(*b"ab"));
    assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
    assert_eq!((monotonic() - started, patience.rests()), (SECOND, false));
}

#[tokio::test(start_paused = true)]
async fn nothing_rests_that_has_an_answer_to_write() {
    let (mut near, mut far) = answered(60 * SECOND);
    let patience = Rc::clone(&far.patience);
    let mut bytes = [0; 8];
    // As many as are taken, and then one more that waits.
    far.write_all(&[b'x'; 64]).await.unwrap();
    std::future::poll_fn(|cx| {
        assert!(Pin::new(&mut far).poll_write(cx, b"y").is_pending());
        Poll::Ready(())
    })
    .await;
    let read = tokio::time::timeout(10 * SECOND, far.read(&mut bytes)).await;
    assert!(read.is_err() && !patience.rests());
    near.read_exact(&mut [0; 64]).await.unwrap();
    far.write_all(b"y").await.unwrap();
    assert!(patience.is_unwatched());
    assert_eq!(rests_after(&mut far).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_body_has_a_minimum_rate_in_both_directions() {
    let min_rate = std::num::NonZeroU32::new(100);
    // A byte in three seconds is in time each time, and too slow after the grace; 200 bytes a second are not.
    for (bytes, is_slow) in [(1, true), (600, false)] {
        let (mut near, far) = duplex(1);
        let patience = Patience::of_client(Reading::Each(30 * SECOND), 30 * SECOND);
        patience.begin_transfers(min_rate);
        let mut far = Timed::new(far, Rc::clone(&patience));
        let send = async {
            for _ in 0..10 {
                tokio::time::sleep(3 * SECOND).await;
                near.write_all(&vec![b'x'; bytes]).await.unwrap();
            }
        };
        let started = monotonic();
        let receive = async {
            let received = kind(far.read_to_end(&mut Vec::new()).await);
            (received, monotonic() - started)
        };
        let end = tokio::select! {
            end = receive => Some(end),
            () = async { send.await; tokio::time::sleep(SECOND).await } => None,
        };
        let too_slow = (Some(io::ErrorKind::TimedOut), RATE_GRACE);
        assert_eq!(end, is_slow.then_some(too_slow), "{bytes} bytes");
    }
    let (mut near, far) = duplex(1);
    let patience = Patience::of_client(Reading::Unbounded, 30 * SECOND);
    patience.begin_transfers(min_rate);
    let mut far = Timed::new(far, Rc::clone(&patience));
    let take = async {
        loop {
            tokio::time::sleep(3 * SECOND).await;
            near.read_u8().await.unwrap();
        }
    };
    let started = monotonic();
    let sent = tokio::select! {
        sent = far.write_all(&[b'x'; 100]) => kind(sent),
        () = take => None,
    };
    assert_eq!((sent, monotonic() - started), (Some(io::ErrorKind::TimedOut), RATE_GRACE));
}
