//! The request for usage in the body of a streaming request.

use super::*;

#[test]
fn the_request_for_usage_is_inserted_alone() {
    for (body, expected) in [
        ("{}", r#"{"stream_options":{"include_usage":true}}"#),
        ("{ }", r#"{ "stream_options":{"include_usage":true}}"#),
        (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        (
            "{\n  \"stream\": true\n}\n",
            "{\n  \"stream_options\":{\"include_usage\":true},\"stream\": true\n}\n",
        ),
        (r#"{"stream_options":{}}"#, r#"{"stream_options":{"include_usage":true}}"#),
        (r#"{"a":1, "stream_options" : {  } }"#, r#"{"a":1, "stream_options" : {"include_usage":true  } }"#),
        (r#"{"stream_options":{"x":1},"b":2}"#, r#"{"stream_options":{"include_usage":true,"x":1},"b":2}"#),
        (
            r#"{"a":{"stream_options":1}}"#,
            r#"{"stream_options":{"include_usage":true},"a":{"stream_options":1}}"#,
        ),
    ] {
        let inserted = with_stream_usage(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
        assert_eq!(String::from_utf8(inserted.clone()).unwrap(), expected);
        let value: Value = serde_json::from_slice(&inserted).unwrap();
        assert_eq!(value["stream_options"]["include_usage"], true);
        assert_eq!(with_stream_usage(&inserted), None, "not twice");
    }
}

#[test]
fn an_explicit_or_unclear_value_is_left_alone() {
    for body in [
        "",
        "[]",
        "{",
        r#"{"stream_options":{"include_usage":false}}"#,
        r#"{"stream_options":{"include_usage":null}}"#,
        r#"{"stream_options":{"include_usage":true}}"#,
        r#"{"stream_options":null}"#,
        r#"{"stream_options":[]}"#,
        r#"{"stream_options":[{}]}"#,
        r#"{"stream_options":"x"}"#,
        r#"{"stream_options":{},"stream_options":{}}"#,
        r#"{"stream\u005foptions":{}}"#,
        r#"{"Stream_Options":{}}"#,
        r#"{"streamOptions":{}}"#,
        r#"{"stream_options":{"Include_Usage":false}}"#,
        r#"{"a":NaN}"#,
        r#"{"a":01}"#,
        r#"{"a":1} x"#,
        r#"{"a":1}{}"#,
    ] {
        assert_eq!(with_stream_usage(body.as_bytes()), None, "{body}");
    }
}
