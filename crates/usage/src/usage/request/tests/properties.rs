//! Properties of estimates, on random bodies.

use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("max_tokens".to_owned()),
        Just("n".to_owned()),
        Just("data".to_owned()),
        Just("content".to_owned()),
        Just("stream_options".to_owned()),
        Just("options".to_owned()),
        ".{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|it| Value::from(f64::from(it) / 4.0)),
        ".{0,20}".prop_map(Value::from),
        "[A-Za-z0-9+/]{4,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Bytes of the JSON text of a value, with the text of its strings in place of their escapes.
fn text_length(value: &Value) -> u64 {
    let between = |length: usize| (2 + length.saturating_sub(1)) as u64;
    match value {
        Value::String(text) => 2 + text.len() as u64,
        Value::Array(elements) => between(elements.len()) + elements.iter().map(text_length).sum::<u64>(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| 3 + name.len() as u64 + text_length(value);
            between(members.len()) + members.iter().map(member).sum::<u64>()
        }
        other => other.to_string().len() as u64,
    }
}

proptest! {
    #[test]
    fn bodies_are_read_as_a_whole_parser_reads_them(body in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_vec_pretty(&body) } else { serde_json::to_vec(&body) }.unwrap();
        let facts = RequestFacts::read(&text);
        prop_assert_eq!(facts.is_some(), body.is_object());
        let Some(facts) = facts else { return Ok(()) };
        let maximum = body["max_tokens"].as_u64().filter(|it| *it > 0);
        prop_assert_eq!(facts.max_output, maximum.map(|it| it.saturating_mul(facts.choices)));
        if facts.media.count() == 0 {
            prop_assert_eq!(facts.text_bytes, text_length(&body));
        }
        if let Some(inserted) = with_stream_usage(&text) {
            let mut expected = body.clone();
            expected["stream_options"]["include_usage"] = true.into();
            prop_assert_eq!(serde_json::from_slice::<Value>(&inserted).unwrap(), expected);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = RequestFacts::read(&bytes).map(|facts| facts.estimate(&EstimateRules::default()));
        let _ = with_stream_usage(&bytes);
    }

    #[test]
    fn any_tokens_of_json_are_read_without_panic(
        tokens in proptest::collection::vec(
            proptest::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u12", "\\ud83d", "\"a\"", "\"stream_options\"", "\"data\"", "\"AAAA\"",
                "\"max_tokens\"", "1", "-", "e9", "true", " ", "\"model\"", "\"prompt\"",
            ]),
            0..40,
        ),
    ) {
        let text = format!("{{{}", tokens.concat());
        if let Some(inserted) = with_stream_usage(text.as_bytes()) {
            prop_assert!(RequestFacts::read(&inserted).is_some());
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert!(serde_json::from_slice::<Value>(&inserted).is_ok());
            }
        }
        let _ = RequestFacts::read(text.as_bytes()).map(|facts| facts.estimate(&EstimateRules::default()));
    }
}
