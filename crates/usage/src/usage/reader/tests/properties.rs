//! The reader compared with a parser of whole documents, on random and mutated ones.

use serde_json::Value as Json;

use super::*;

const NAMES: [&str; 12] = [
    "usage",
    "response",
    "message",
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "model",
    "choices",
    "done",
    "delta",
    "x",
];

fn document() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (0..100u64).prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f32>().prop_map(|it| Json::from(f64::from(it))),
        ".{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let member = (proptest::sample::select(&NAMES[..]).prop_map(str::to_owned), inner.clone());
        prop_oneof![
            1 => proptest::collection::vec(inner, 0..4).prop_map(Json::from),
            4 => proptest::collection::vec(member, 0..6).prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// The value that a whole parser finds.
fn expected(document: &Json, pointer: &str) -> Value {
    match document.pointer(pointer) {
        None | Some(Json::Null) => Value::Absent,
        Some(value) => value.as_u64().map_or(Value::Invalid, Value::Number),
    }
}

const POINTERS: [&str; 5] = ["/usage/prompt_tokens", "/response/usage", "/x/1/x", "/x", ""];

fn assert_equal(document: &Json, read: &Observed) {
    for (pointer, value) in POINTERS.iter().zip(&read.values) {
        assert_eq!(*value, expected(document, pointer), "{pointer} of {document}");
    }
    let numbers = |name: &str| {
        let places = ["/usage", "/response/usage", "/message/usage"];
        places.map(|place| expected(document, &format!("{place}/{name}")))
    };
    // With several objects the last one in the text counts, which a map does not know.
    let places = ["/usage", "/response/usage", "/message/usage"];
    let fields = ["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"];
    if places.iter().filter(|place| document.pointer(place).is_some_and(Json::is_object)).count() > 1 {
        return;
    }
    let found = fields
        .map(|field| numbers(field).into_iter().find(|value| *value != Value::Absent).unwrap_or_default());
    let number = |value: Value| if let Value::Number(number) = value { Some(number) } else { None };
    let (input, output) = (number(found[0]).max(number(found[2])), number(found[1]).max(number(found[3])));
    let is_known = (input.is_some() || output.is_some()) && !found.contains(&Value::Invalid);
    let tokens = is_known.then(|| super::tokens(input.unwrap_or(0), output.unwrap_or(0)));
    assert_eq!(read.tokens, tokens, "{document}");
}

proptest! {
    #[test]
    fn documents_are_read_as_a_whole_parser_reads_them(document in document(), pretty in any::<bool>(), length in 1..20usize) {
        let text = if pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) }.unwrap();
        let read = in_parts(Framing::Json, &text, length, &POINTERS);
        prop_assert!(read.is_whole);
        assert_equal(&document, &read);
    }

    #[test]
    fn mutated_documents_are_whole_if_a_whole_parser_accepts_them(
        document in document(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), proptest::sample::select(b"{}[]\",:0123456789eE.-+\\untf al".to_vec())), 1..4),
        length in 1..20usize,
    ) {
        let mut text = serde_json::to_vec(&document).unwrap();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        let read = in_parts(Framing::Json, &text, length, &POINTERS);
        match serde_json::from_slice::<Json>(&text) {
            // A repeated name may have hidden a number that counts for us.
            Ok(document) if serde_json::to_vec(&document).unwrap().len() == text.len() => {
                prop_assert!(read.is_whole);
                assert_equal(&document, &read);
            }
            Ok(_) => prop_assert!(read.is_whole),
            // It refuses halves of pairs, numbers that are too large, and changed bytes of UTF-8.
            Err(error) => prop_assert!(
                !read.is_whole || ["surrogate", "unicode", "range", "escape"].iter().any(|it| error.to_string().contains(it)),
                "{error}: {}", String::from_utf8_lossy(&text)
            ),
        }
    }

    #[test]
    fn streams_are_read_as_their_documents(documents in proptest::collection::vec(document(), 0..5), length in 1..30usize) {
        let documents: Vec<Json> = documents.into_iter().filter(Json::is_object).collect();
        let documents_as = |start: &str, end: &str| documents.iter().flat_map(|it| [start.to_owned(), it.to_string(), end.to_owned()]).collect::<String>();
        let lines = documents_as("", "\n");
        let events = documents_as("event: x\r\ndata: ", "\r\n\r\n");
        let pointers = &POINTERS[..4];
        let lines = in_parts(Framing::Lines, lines.as_bytes(), length, pointers);
        let events = in_parts(Framing::EventStream, events.as_bytes(), length, pointers);
        prop_assert!(lines.is_whole && events.is_whole);
        for (place, pointer) in pointers.iter().enumerate() {
            let values = documents.iter().map(|it| expected(it, pointer));
            let last = values.rev().find(|value| *value != Value::Absent).unwrap_or_default();
            prop_assert_eq!(lines.values[place], last);
            prop_assert_eq!(events.values[place], last);
        }
        prop_assert_eq!(lines.tokens, events.tokens);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), length in 1..40usize) {
        for framing in [Framing::Json, Framing::EventStream, Framing::Lines] {
            let read = in_parts(framing, &bytes, length, &POINTERS);
            prop_assert_eq!(read, in_parts(framing, &bytes, 300, &POINTERS));
        }
    }
}
