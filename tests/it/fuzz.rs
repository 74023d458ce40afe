//! The bodies of the fuzz targets, over the corpus in `tests/corpus` and over generated input. `fuzz/` runs the same bodies with
//! cargo-fuzz; add its findings to the corpus.

mod bodies;
mod cuts;
mod http1;
mod logs;
mod messages;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

/// Runs a body over each file of a folder.
fn over(folder: &str, ending: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let files = files.iter().filter(|file| file.to_str().unwrap().ends_with(ending));
    let count = files.map(|file| body(&fs::read(file).unwrap())).count();
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn the_corpus_satisfies_the_properties() {
    over("corpus/path", "", bodies::path);
    over("corpus/host", "", bodies::host);
    over("corpus/address", "", bodies::address);
    over("corpus/key", "", bodies::key);
    over("corpus/pattern", "", bodies::pattern);
    over("corpus/body", "", bodies::body);
    over("corpus/gate", "", bodies::gate);
    over("corpus/headers", "", bodies::headers);
    over("corpus/consumers", "", bodies::consumers);
    over("corpus/consumer_record", "", bodies::consumer_record);
    over("corpus/origin", "", bodies::origin);
    over("corpus/proxy_header", "", bodies::proxy_header);
    over("corpus/http1_request", "", http1::requests);
    over("corpus/http1_response", "", http1::responses);
    over("logs", ".log", bodies::log);
    over("it/config/error_reports", ".toml", bodies::file);
    over("it/config", ".toml", bodies::file);
}

/// Arbitrary bytes, or a line of this form.
fn line(form: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..64),
        4 => form.prop_map(String::into_bytes),
    ]
}

/// The same with several lines, after a line of another form.
fn lines(first: &'static str, form: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let structured = (first, prop::collection::vec(form, 0..6));
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..64),
        4 => structured.prop_map(|(first, lines)| (first + &lines.join("\n")).into_bytes()),
    ]
}

const FIELD: &str = "(connection|Connection|te|trailer|content-length|transfer-encoding|host|x-key|cookie|X_Key)\
    : ?([a-z0-9, +\t-]{0,12}|trailers|close, host|[0-9]{1,21}|0[0-9], ?[0-9]|x-key, te|content-length)";
const NODE: &str = "((for=)?\"?(10\\.0\\.0\\.[0-9]|203\\.0\\.113\\.9|\\[?(fd00|2001:db8)::[0-9a-f]{1,4}\\]?|_x|)\
    (:[0-9]{1,6})?\"?(, ?|, ?(for=)?(10\\.0\\.0\\.2|::ffff:10\\.1\\.1\\.1|unknown|;))?){0,3}";

/// A piece of a JSON text, which is often valid as a whole.
const JSON: &str = "(\\{\"[abA0]\":(\\{\"(b|\\\\u0061|~)\":)?(\"[a-cÄ ]{0,2}\"|-?[0-9]{1,2}([.]0|e[0-9])?|true|null|\\[\"a\",0\\]|\\{\\})\\}?(,\"[aAb]\":\"b\")?\\}|\\[[01],\"b\"\\])";

proptest! {
    #[test]
    fn paths_satisfy_their_properties(bytes in line("/[a-c./%2eEfF5A:\\\\é@\"*\u{0} ]{0,24}")) {
        bodies::path(&bytes);
    }

    #[test]
    fn hosts_satisfy_their_properties(bytes in line("(\\[[0-9a-fA-F:.]{0,12}\\]|[Aa1.]{0,6}|[A-Ca-c0-9._~%,*@-]{0,16})(:[0-9+]{0,6})?")) {
        bodies::host(&bytes);
    }

    #[test]
    fn client_addresses_satisfy_their_properties(bytes in lines("[01]", NODE)) {
        bodies::address(&bytes);
    }

    #[test]
    fn keys_satisfy_their_properties(bytes in line("(header|cookie|query|jwt|path_param|tls|path|host)?:?[a-zA-Z _:é-]{0,12}")) {
        bodies::key(&bytes);
    }

    #[test]
    fn patterns_satisfy_their_properties(bytes in lines(r"[ab*\\]{0,12}\n", r"[abAB*\\]{0,6}")) {
        bodies::pattern(&bytes);
    }

    #[test]
    fn consumer_records_satisfy_their_properties(
        bytes in lines("", "(name|tier|blocked|expires|x)=([a-z ]{0,4}|1|true|0|2027-01-3[0-9]|20270131|1801353600|2027-01-31T00:00:00Z)"),
    ) {
        bodies::consumer_record(&bytes);
    }

    #[test]
    fn origins_satisfy_their_properties(bytes in line("(https?|HTTPS)://([a-z.@:/#-]{0,8}[.])?(a|b)[.]test(:8443|:443)?")) {
        bodies::origin(&bytes);
    }

    #[test]
    fn json_bodies_satisfy_their_properties(bytes in lines("(/[abA0~1]{0,2}){1,3}\n", JSON)) {
        bodies::body(&bytes);
    }

    #[test]
    fn forms_satisfy_their_properties(bytes in line("[ab.\\[\\]]{1,3}\n([abAB+.%\\[\\]]{0,3}(=[aA+%é]{0,3}|%41|%ff|%00)?&){0,4}")) {
        bodies::body(&bytes);
    }

    #[test]
    fn headers_satisfy_their_properties(bytes in lines("", FIELD)) {
        bodies::headers(&bytes);
    }

    #[test]
    fn proxy_headers_satisfy_their_properties(
        bytes in line("PROXY (TCP4|TCP6|UNKNOWN|UDP4) (([0-9]{1,3}\\.){3}[0-9]{1,3}|::[0-9a-f]{1,4}) (10\\.0\\.0\\.1|::1) [0-9]{1,5} [0-9]{1,5} ?\r?\n"),
        family in 0..0x32_u8, length in 0..64_usize, block in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        bodies::proxy_header(&bytes);
        let fixed = [0x21, family, 0, u8::try_from(length).unwrap()];
        bodies::proxy_header(&[&b"\r\n\r\n\0\r\nQUIT\n"[..], &fixed, &block].concat());
    }

    #[test]
    fn requests_satisfy_their_properties(
        target in "(http://[A-Ca-c.:@9]{1,8})?/(users|%75sers|.|..|/){0,2}(/[a-c%2fF.é:]{0,6}){0,3}([?](key|%6Bey)=[a-c%61+é]{0,6}(&key=[a-c])?)?",
        rest in prop::collection::vec(FIELD, 0..5),
    ) {
        bodies::gate(format!("GET {target}\nhost: a.test\n{}", rest.join("\n")).as_bytes());
    }
}

proptest! {
    // Each case reads a whole file twice.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn broken_files_satisfy_their_properties(
        breaks in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, "[\\[\\]{}=\"'#\n a-z0-9.$é-]{0,6}"), 1..4),
    ) {
        let mut text: Vec<char> = include_str!("config/every_key.toml").chars().collect();
        for (place, length, new) in breaks {
            let start = place.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, new.chars());
        }
        bodies::file(text.into_iter().collect::<String>().as_bytes());
    }

    #[test]
    fn broken_files_of_consumers_satisfy_their_properties(
        breaks in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, "[\\[\\]{}=\"'#\n a-z0-9.$é-]{0,6}"), 1..4),
    ) {
        let mut text: Vec<char> = include_str!("config/consumers.toml").chars().collect();
        for (place, length, new) in breaks {
            let start = place.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, new.chars());
        }
        bodies::consumers(text.into_iter().collect::<String>().as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn requests_are_read_as_hyper_reads_them(seed in any::<u8>(), bytes in messages::requests()) {
        http1::requests(&[&[seed], &*bytes].concat());
    }

    #[test]
    fn responses_are_read_as_hyper_reads_them(
        seed in any::<u8>(), method in any::<u8>(), bytes in messages::response(),
    ) {
        http1::responses(&[&[seed, method], &*bytes].concat());
    }
}
