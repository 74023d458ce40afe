//! Writes a trace as an access log of nginx, in its `combined` format.

use std::io::{self, Write};

use jiff::Timestamp as Instant;
use jiff::fmt::strtime;

use super::generate::Trace;

/// Writes the lines of all requests.
///
/// # Errors
/// Those of `out`.
pub fn write_combined(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut second = u64::MAX;
    let mut time = String::new();
    for request in &trace.requests {
        let client = &trace.clients[request.client as usize];
        // Formatting a time takes longer than the rest of the line.
        if request.at.0 / 1_000_000 != second {
            second = request.at.0 / 1_000_000;
            time = formatted(second);
        }
        let (page, status) = (request.page, request.status);
        let bytes = 500 + u32::from(page) * 37;
        writeln!(
            out,
            "{} - - [{time}] \"GET /pages/{page} HTTP/1.1\" {status} {bytes} \"-\" \"{}\"",
            client.address,
            client.kind.user_agent()
        )?;
    }
    Ok(())
}

/// The time in the format of `$time_local`, in UTC.
fn formatted(second: u64) -> String {
    let instant = i64::try_from(second).ok().and_then(|second| Instant::from_second(second).ok());
    let text = instant.and_then(|instant| strtime::format("%d/%b/%Y:%H:%M:%S +0000", instant).ok());
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::generate::{TraceClient, TraceRequest};
    use super::super::kind::ClientKind;
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn lines_are_those_of_nginx() {
        let client = TraceClient { kind: ClientKind::Crawler, address: [10, 0, 0, 7].into() };
        let request = TraceRequest { at: Timestamp(1_767_571_200_500_000), client: 0, page: 12, status: 200 };
        let mut text = Vec::new();
        write_combined(&Trace { clients: vec![client], requests: vec![request] }, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "10.0.0.7 - - [05/Jan/2026:00:00:00 +0000] \"GET /pages/12 HTTP/1.1\" 200 944 \"-\" \
             \"ExampleBot/1.0 (+https://bot.example/)\"\n"
        );
    }
}
