//! A writer of small databases in the format MMDB (<https://maxmind.github.io/MaxMind-DB/>), for tests.

use std::net::IpAddr;

/// A value of a database.
pub enum Value<'a> {
    Text(&'a str),
    Short(u16),
    Number(u32),
    Long(u64),
    Map(Vec<(&'a str, Value<'a>)>),
    Texts(Vec<&'a str>),
}

/// The numbers of types.
const TEXT: u8 = 2;
const SHORT: u8 = 5;
const NUMBER: u8 = 6;
const MAP: u8 = 7;
const LONG: u8 = 9;
const LIST: u8 = 11;

/// What a side of a node leads to.
#[derive(Clone, Copy)]
enum Side {
    Nothing,
    Node(usize),
    /// The value that starts at this offset.
    Value(usize),
}

/// A database of countries: `("192.0.2.0", 24, "DE")`.
pub fn countries(entries: &[(&str, u8, &str)]) -> Vec<u8> {
    let value = |code| Value::Map(vec![("country", Value::Map(vec![("iso_code", Value::Text(code))]))]);
    let entries: Vec<_> =
        entries.iter().map(|(address, bits, code)| (*address, *bits, value(code))).collect();
    database("GeoLite2-Country", &entries)
}

/// A database of autonomous systems: `("192.0.2.0", 24, 64496)`.
pub fn systems(entries: &[(&str, u8, u32)]) -> Vec<u8> {
    let value = |asn| Value::Map(vec![("autonomous_system_number", Value::Number(asn))]);
    let entries: Vec<_> = entries.iter().map(|(address, bits, asn)| (*address, *bits, value(*asn))).collect();
    database("GeoLite2-ASN", &entries)
}

/// A database with these networks, none of which is within another.
fn database(kind: &str, entries: &[(&str, u8, Value<'_>)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Side::Nothing; 2]], Vec::new());
    for (address, bits, value) in entries {
        let offset = data.len();
        write(&mut data, value);
        // Addresses of IPv4 are in ::/96.
        let (address, bits) = match address.parse().unwrap() {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), bits + 96),
            IpAddr::V6(v6) => (u128::from(v6), *bits),
        };
        let mut node = 0;
        for depth in 0..bits {
            let side = usize::from(address >> (127 - depth) & 1 == 1);
            if depth + 1 == bits {
                nodes[node][side] = Side::Value(offset);
                break;
            }
            node = if let Side::Node(next) = nodes[node][side] {
                next
            } else {
                nodes.push([Side::Nothing; 2]);
                let next = nodes.len() - 1;
                nodes[node][side] = Side::Node(next);
                next
            };
        }
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for side in nodes.iter().flatten() {
        let record = match side {
            Side::Nothing => count,
            Side::Node(node) => *node,
            Side::Value(offset) => count + 16 + offset,
        };
        file.extend_from_slice(&u32::try_from(record).unwrap().to_be_bytes()[1..]);
    }
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    write(
        &mut file,
        &Value::Map(vec![
            ("binary_format_major_version", Value::Short(2)),
            ("binary_format_minor_version", Value::Short(0)),
            ("build_epoch", Value::Long(1_700_000_000)),
            ("database_type", Value::Text(kind)),
            ("description", Value::Map(vec![("en", Value::Text("test"))])),
            ("ip_version", Value::Short(6)),
            ("languages", Value::Texts(vec!["en"])),
            ("node_count", Value::Number(u32::try_from(count).unwrap())),
            ("record_size", Value::Short(24)),
        ]),
    );
    file
}

fn write(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Text(text) => {
            control(out, TEXT, text.len());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Short(number) => integer(out, SHORT, &number.to_be_bytes()),
        Value::Number(number) => integer(out, NUMBER, &number.to_be_bytes()),
        Value::Long(number) => integer(out, LONG, &number.to_be_bytes()),
        Value::Map(entries) => {
            control(out, MAP, entries.len());
            for (key, value) in entries {
                write(out, &Value::Text(key));
                write(out, value);
            }
        }
        Value::Texts(texts) => {
            control(out, LIST, texts.len());
            for text in texts {
                write(out, &Value::Text(text));
            }
        }
    }
}

fn integer(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    control(out, kind, bytes.len());
    out.extend_from_slice(bytes);
}

/// The type and the size of a value, which is below 29. Types above 7 have a byte of their own.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    let size = u8::try_from(size).unwrap();
    assert!(size < 29, "a longer size has another form");
    if kind > 7 {
        out.extend([size, kind - 7]);
    } else {
        out.push(kind << 5 | size);
    }
}
