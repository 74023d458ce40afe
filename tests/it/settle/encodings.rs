//! Responses that are compressed although their request has asked for none.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::setup::{Case, RESERVE, case, config, play, settled_by, upstream};
use crate::support::over_both_stores;

const JSON: &str = r#"{"answer": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "usage": {"cost": 7}}"#;
const EVENTS: &str = "data: {\"a\": 1}\n\ndata: {\"usage\": {\"cost\": 8}}\n\ndata: [DONE]\n\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

fn deflate(text: &str) -> Vec<u8> {
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(text.as_bytes()).unwrap();
    deflate.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

/// A POST request whose response has this type, coding and body.
fn encoded(name: &'static str, (media_type, coding): (&str, &str), body: &[u8], charged: u64) -> Case {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    case(name, [head.as_bytes(), body].concat(), charged).post("{}")
}

#[test]
fn compressed_responses_are_decoded_beside_the_stream() {
    let json = |coding| ("application/json", coding);
    let events = |coding| ("text/event-stream", coding);
    let cut = |body: Vec<u8>| body[..body.len() / 2].to_vec();
    let bodies = [
        (encoded("gzip", json("gzip"), &gzip(JSON), 7), gzip(JSON)),
        (encoded("x-gzip", json("X-GZip"), &gzip(JSON), 7), gzip(JSON)),
        (encoded("deflate", json("deflate"), &deflate(JSON), 7), deflate(JSON)),
        (encoded("zstd", json("zstd"), &zstd(JSON), 7), zstd(JSON)),
        (encoded("identity", json("identity"), JSON.as_bytes(), 7), JSON.into()),
        (encoded("gzip-events", events("gzip"), &gzip(EVENTS), 8), gzip(EVENTS)),
        (encoded("deflate-events", events("deflate"), &deflate(EVENTS), 8), deflate(EVENTS)),
        (encoded("zstd-events", events("zstd"), &zstd(EVENTS), 8), zstd(EVENTS)),
        (
            encoded("br", json("br"), b"\x0b\x05\x80{}", RESERVE).unknown("encoding"),
            b"\x0b\x05\x80{}".to_vec(),
        ),
        (encoded("two", json("gzip, gzip"), &gzip(JSON), RESERVE).unknown("encoding"), gzip(JSON)),
        (encoded("other", json("deflate"), &gzip(JSON), RESERVE).unknown("encoding"), gzip(JSON)),
        (encoded("plain", json("zstd"), JSON.as_bytes(), RESERVE).unknown("encoding"), JSON.into()),
        (encoded("cut", json("gzip"), &cut(gzip(JSON)), RESERVE).unknown("malformed"), cut(gzip(JSON))),
    ];
    let cases: Vec<Case> = bodies.iter().map(|(case, _)| case.clone()).collect();
    let upstream = upstream(&cases);
    over_both_stores(&config(&settled_by("json:/usage/cost"), &upstream.url()), |proxy| {
        for (case, body) in &bodies {
            let response = play(proxy, case).unwrap();
            assert_eq!(
                (response.body, response.start),
                (body.clone(), "HTTP/1.1 200 OK".to_owned()),
                "{}",
                case.name
            );
        }
    });
    assert!(upstream.requests().iter().all(|request| request.header("accept-encoding") == Some("identity")));
}

/// A body that expands a thousandfold is read up to a bound, and passed on whole.
#[test]
fn a_decompression_bomb_is_bounded() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(b"{\"a\": \"").unwrap();
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..80 {
        gzip.write_all(&zeros).unwrap();
    }
    gzip.write_all(b"\", \"usage\": {\"cost\": 7}}").unwrap();
    let bomb = gzip.finish().unwrap();
    let cases = [encoded("bomb", ("application/json", "gzip"), &bomb, RESERVE).unknown("encoding")];
    let upstream = upstream(&cases);
    over_both_stores(&config(&settled_by("json:/usage/cost"), &upstream.url()), |proxy| {
        let before = proxy.peak_memory();
        assert_eq!(play(proxy, &cases[0]).unwrap().body, bomb);
        let grown = proxy.peak_memory() - before;
        assert!(grown < 8 * 1024, "{grown} KiB more");
    });
}

/// A response whose cost is not in its body may be compressed.
#[test]
fn other_costs_leave_the_encoding_to_client_and_server() {
    let cases = [encoded("gzip", ("application/json", "gzip"), &gzip(JSON), gzip(JSON).len() as u64)
        .request("Accept-Encoding: gzip\r\nContent-Length: 0\r\n\r\n")];
    let upstream = upstream(&cases);
    over_both_stores(&config(&settled_by("response_bytes"), &upstream.url()), |proxy| {
        play(proxy, &cases[0]).unwrap();
    });
    assert!(upstream.requests().iter().all(|request| request.header("accept-encoding") == Some("gzip")));
}
