//! The PROXY protocol, versions 1 and 2: a load balancer that forwards bytes sends the address of the client before them
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::http1::is_digits;

/// The first bytes of version 2, which no other protocol starts with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1 in bytes, with its CRLF.
const MAX_LINE: usize = 107;
/// The most bytes that may follow the fixed part of version 2. The protocol allows 65,535, but addresses take 36, and the
/// extensions (TLVs) that balancers send take a few hundred, or a few thousand with a certificate among them.
const MAX_BLOCK: usize = 8 * 1024;

/// Why a connection does not start with a PROXY header.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The connection was closed, or failed, before the end of the header.
    #[error("connection closed within the PROXY header: {0}")]
    Ended(#[from] io::Error),
    /// The connection starts with something else.
    #[error("connection does not start with a PROXY header")]
    Missing,
    /// The header does not follow the protocol.
    #[error("malformed PROXY header")]
    Malformed,
    /// The header is longer than allowed.
    #[error("PROXY header is too long: {0} bytes, of which {MAX_BLOCK} are allowed")]
    TooLong(usize),
}

/// Reads a header from a stream, and nothing after it: the address of the client, or `None` if the sender is the client
/// itself.
pub(super) async fn read(stream: &mut TcpStream) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    // Both versions are longer than this, so that nothing after the header is read.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        let mut fixed = [0; 4];
        stream.read_exact(&mut fixed).await?;
        let [_, _, length @ ..] = fixed;
        let length = usize::from(u16::from_be_bytes(length));
        if length > MAX_BLOCK {
            return Err(ProxyHeaderError::TooLong(length));
        }
        let mut block = vec![0; length];
        stream.read_exact(&mut block).await?;
        return parse_proxy_header(&[&start[..], &fixed, &block].concat());
    }
    if !start.starts_with(b"PROXY ") {
        return Err(ProxyHeaderError::Missing);
    }
    let mut line = [0; MAX_LINE];
    line[..start.len()].copy_from_slice(&start);
    let mut length = start.len();
    while line[length - 1] != b'\n' {
        let rest = &mut line[length..];
        let seen = stream.peek(rest).await?;
        if seen == 0 {
            return Err(if rest.is_empty() { ProxyHeaderError::Malformed } else { ended() });
        }
        let end = rest[..seen].iter().position(|&byte| byte == b'\n').map_or(seen, |index| index + 1);
        stream.read_exact(&mut rest[..end]).await?;
        length += end;
    }
    parse_proxy_header(&line[..length])
}

/// Parses a whole header: the address of the client, or `None` if the sender is the client itself. Fails when the bytes are no
/// header, or a malformed one.
pub fn parse_proxy_header(header: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let Some(rest) = header.strip_prefix(&SIGNATURE) else { return version_1(header) };
    match rest {
        [kind, family, high, low, block @ ..]
            if block.len() == usize::from(u16::from_be_bytes([*high, *low])) =>
        {
            version_2(*kind, *family, block)
        }
        _ => Err(ProxyHeaderError::Malformed),
    }
}

fn ended() -> ProxyHeaderError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

/// Parses a line such as `PROXY TCP4 192.0.2.7 10.0.0.1 4711 443`.
fn version_1(line: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let text = line.strip_suffix(b"\r\n").and_then(|line| line.strip_prefix(b"PROXY "));
    let is_one_line = |text: &&[u8]| !text.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    let text = text.filter(is_one_line).ok_or(ProxyHeaderError::Malformed)?;
    if text == b"UNKNOWN" || text.starts_with(b"UNKNOWN ") {
        return Ok(None);
    }
    client(text).map(Some).ok_or(ProxyHeaderError::Malformed)
}

fn client(text: &[u8]) -> Option<SocketAddr> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let address: fn(&str) -> Option<IpAddr> = match words.next()? {
        "TCP4" => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |word| word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return None,
    };
    // The destination has to be valid too, though it is not used.
    let [client, _] = [address(words.next()?)?, address(words.next()?)?];
    let [port, _] = [port(words.next()?)?, port(words.next()?)?];
    words.next().is_none().then_some(SocketAddr::new(client, port))
}

fn port(word: &str) -> Option<u16> {
    let is_plain = is_digits(word.as_bytes()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

/// Parses what follows the signature of version 2: the byte with version and command, the byte with address family and
/// transport, and the block with the addresses and extensions.
fn version_2(kind: u8, family: u8, block: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let malformed = ProxyHeaderError::Malformed;
    match kind {
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(malformed),
    }
    match family {
        0x11 => {
            let [a, b, c, d, _, _, _, _, high, low, _, _] = block.first_chunk().ok_or(malformed)?;
            let client = Ipv4Addr::new(*a, *b, *c, *d);
            Ok(Some(SocketAddr::new(client.into(), u16::from_be_bytes([*high, *low]))))
        }
        0x21 => {
            let [addresses @ .., high, low, _, _]: &[u8; 36] = block.first_chunk().ok_or(malformed)?;
            let client = *addresses.first_chunk::<16>().ok_or(ProxyHeaderError::Malformed)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(client).into(), u16::from_be_bytes([*high, *low]))))
        }
        // Unix sockets, datagrams and unspecified families have no address of a client over TCP.
        _ if family >> 4 <= 3 && family & 0xf <= 2 => Ok(None),
        _ => Err(malformed),
    }
}

#[cfg(test)]
mod tests {
    use ppp::{v1, v2};
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> String {
        match version_1(text.as_bytes()) {
            Ok(client) => client.map_or("the sender".to_owned(), |client| client.to_string()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_line_has_the_address_of_the_client() {
        assert_eq!(line("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"), "192.0.2.7:4711");
        assert_eq!(line("PROXY TCP6 2001:db8::7 ::1 0 65535\r\n"), "[2001:db8::7]:0");
        assert_eq!(line("PROXY UNKNOWN\r\n"), "the sender");
        assert_eq!(line("PROXY UNKNOWN ffff::1 what ever\r\n"), "the sender");
        for wrong in [
            "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443 \r\n",
            "PROXY TCP4  192.0.2.7 10.0.0.1 4711 443\r\n",
            "PROXY TCP4 ::1 ::1 4711 443\r\n",
            "PROXY TCP6 192.0.2.7 10.0.0.1 4711 443\r\n",
            "PROXY TCP4 192.0.2.07 10.0.0.1 4711 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 04711 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +80 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 65536 443\r\n",
            "PROXY UDP4 192.0.2.7 10.0.0.1 4711 443\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY UNKNOWN \r\n\r\n",
            "PROXY UNKNOWN\r \r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(line(wrong), "malformed PROXY header", "{wrong}");
        }
    }

    /// Valid and invalid words of a line.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<Ipv4Addr>().prop_map(|address| address.to_string()),
            any::<Ipv6Addr>().prop_map(|address| address.to_string()),
            any::<u16>().prop_map(|port| port.to_string()),
            "TCP4|TCP6|UNKNOWN|TCP5|0|00|65536|1.2.3|::g",
        ]
    }

    proptest! {
        #[test]
        fn lines_are_parsed_as_by_the_ppp_crate(words in prop::collection::vec(word(), 0..7), end in "\r\n|\n| \r\n") {
            let text = format!("PROXY {}{end}", words.join(" "));
            let (ours, theirs) = (version_1(text.as_bytes()).ok(), v1::Header::try_from(text.as_str()).ok());
            let theirs = theirs.map(|header| match header.addresses {
                v1::Addresses::Unknown => None,
                v1::Addresses::Tcp4(it) => Some(SocketAddr::from((it.source_address, it.source_port))),
                v1::Addresses::Tcp6(it) => Some(SocketAddr::from((it.source_address, it.source_port))),
            });
            if let Some(None) = ours {
                // What follows UNKNOWN is ignored; `ppp` rejects more words than a line may have.
                prop_assert!(theirs.flatten().is_none(), "{}", text);
            } else {
                prop_assert_eq!(ours, theirs, "{}", text);
            }
        }

        #[test]
        fn valid_lines_have_the_address_of_the_client(address: IpAddr, client_port: u16, port: u16) {
            let client = SocketAddr::new(address, client_port);
            let (family, to) = if client.is_ipv4() { ("TCP4", "10.0.0.1") } else { ("TCP6", "::1") };
            let text = format!("PROXY {family} {} {to} {} {port}\r\n", client.ip(), client.port());
            prop_assert!(text.len() <= MAX_LINE);
            prop_assert_eq!(version_1(text.as_bytes()).unwrap(), Some(client));
        }

        #[test]
        fn blocks_are_parsed_as_by_the_ppp_crate(
            kind in prop_oneof![8 => Just(0x21_u8), 1 => any::<u8>()],
            family in prop_oneof![4 => Just(0x11_u8), 4 => Just(0x21), 1 => any::<u8>()],
            block in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let length = u16::try_from(block.len()).unwrap().to_be_bytes();
            let whole = [&SIGNATURE[..], &[kind, family], &length, &block].concat();
            let ours = version_2(kind, family, &block).ok();
            // `ppp` returns other values than this parser for LOCAL (a health check of the balancer) and for Unix sockets.
            prop_assume!(kind != 0x20 && family >> 4 != 3);
            let theirs = v2::Header::try_from(whole.as_slice()).ok();
            // `ppp` accepts any addresses; this parser uses only those of TCP connections, and requires them there.
            let theirs = theirs.map(|header| match (header.protocol, header.addresses) {
                (v2::Protocol::Stream, v2::Addresses::IPv4(it)) => {
                    Some(SocketAddr::from((it.source_address, it.source_port)))
                }
                (v2::Protocol::Stream, v2::Addresses::IPv6(it)) => {
                    Some(SocketAddr::from((it.source_address, it.source_port)))
                }
                _ => None,
            });
            if let Some(None) = ours {
                prop_assert!(theirs.flatten().is_none());
            } else {
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
