//! What requests say about their cost, and estimates.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;

mod insertion;
mod properties;

fn facts(body: &str) -> RequestFacts {
    RequestFacts::read(body.as_bytes()).unwrap_or_else(|| panic!("{body}"))
}

fn estimate(body: &Value) -> Tokens {
    facts(&body.to_string()).estimate(&EstimateRules::default())
}

/// The estimated output.
fn output(body: &str) -> u64 {
    facts(body).estimate(&EstimateRules::default()).output
}

fn base64(bytes: usize) -> String {
    "iVBO".repeat(bytes.div_ceil(4))
}

#[test]
fn a_chat_request_is_read() {
    let facts = facts(
        r#"{ "model": "gpt-4o-mini", "stream": true, "stream_options": {"include_usage": false}, "max_tokens": 300, "n": 2,
            "messages": [{"role": "user", "content": "Hello"}] }"#,
    );
    assert_eq!(facts.model.as_deref(), Some("gpt-4o-mini"));
    assert_eq!(facts.max_output, Some(600));
    assert_eq!(facts.choices, 2);
    assert!(facts.is_stream);
    assert_eq!(facts.include_usage, Some(false));
    assert_eq!(facts.media.count(), 0);
}

#[test]
fn the_greatest_maximum_counts() {
    for (body, expected) in [
        (r#"{"max_completion_tokens":10}"#, 10),
        (r#"{"max_output_tokens":10}"#, 10),
        (r#"{"max_tokens":10}"#, 10),
        (r#"{"n_predict":10}"#, 10),
        (r#"{"generationConfig":{"maxOutputTokens":10}}"#, 10),
        (r#"{"generation_config":{"max_output_tokens":10}}"#, 10),
        (r#"{"options":{"num_predict":10}}"#, 10),
        (r#"{"inferenceConfig":{"maxTokens":10}}"#, 10),
        (r#"{"max_tokens":10,"max_completion_tokens":30,"n_predict":20}"#, 30),
        (r#"{"max_tokens":30,"max_tokens":10}"#, 30),
        (r#"{"max_tokens":10,"max_tokens":30}"#, 30),
        (r#"{"MAX_TOKENS":30,"max_tokens":10}"#, 30),
        (r#"{"OPTIONS":{"Num_Predict":3000}}"#, 3000),
        ("{\"max_to\u{212a}ens\":3000,\"max_tokens\":1}", 3000),
        (r#"{"max\u005ftokens":30}"#, 30),
        (r#"{"max_tokens":10,"n":3,"best_of":5}"#, 50),
        (r#"{"generationConfig":{"maxOutputTokens":10,"candidateCount":4}}"#, 40),
        (r#"{"max_tokens":18446744073709551615,"n":2}"#, u64::MAX),
        (r#"{"max_tokens":99999999999999999999999999}"#, u64::MAX),
    ] {
        assert_eq!(output(body), expected, "{body}");
    }
}

#[test]
fn a_maximum_that_is_no_whole_number_counts_as_absent() {
    for value in [
        "null",
        "0",
        "true",
        "\"many\"",
        "[5]",
        "{\"a\":5}",
        "\"\"",
        "-0.5",
        "\"12\"",
        "12.0",
        "1.5",
        "-1",
        "-2",
        "NaN",
    ] {
        assert_eq!(output(&format!(r#"{{"max_tokens":{value}}}"#)), 1024, "{value}");
    }
    for elsewhere in [
        r#"{"a":{"max_tokens":5}}"#,
        r#"{"messages":[{"max_tokens":5}]}"#,
        r#"{"options":{"max_tokens":5}}"#,
        r#"{"num_predict":5}"#,
        r#"{"options":[{"num_predict":5}]}"#,
        r#"{"a":"\"max_tokens\":5"}"#,
    ] {
        assert_eq!(output(elsewhere), 1024, "{elsewhere}");
    }
}

#[test]
fn values_that_only_some_servers_read_raise_the_estimate_alone() {
    assert_eq!(output(r#"{"max_tokens":"100000"}"#), 100_000);
    assert_eq!(output(r#"{"max_tokens":1e5}"#), 100_000);
    assert_eq!(output(r#"{"max_tokens":100000.0}"#), 100_000);
    assert_eq!(output(r#"{"max_tokens":1e400}"#), u64::MAX);
    assert_eq!(output(r#"{"max_tokens":5,"max_completion_tokens":"100000"}"#), 100_000);
    assert_eq!(output(r#"{"max_tokens":5,"options":{"num_predict":-1}}"#), 1024, "no bound for one server");
    assert_eq!(output(r#"{"max_tokens":5,"n":"3"}"#), 15);
    assert_eq!(output(r#"{"n":3}"#), 3072, "the default, for each");
}

#[test]
fn a_completion_for_each_prompt_is_counted() {
    assert_eq!(output(r#"{"prompt":["a","b","c"],"max_tokens":10,"n":2}"#), 60);
    assert_eq!(output(r#"{"prompt":"abc","max_tokens":10}"#), 10);
    let ids = facts(r#"{"prompt":[[1,2,3],[40000]],"max_tokens":10}"#);
    assert_eq!((ids.max_output, ids.token_ids), (Some(20), 4));
    assert_eq!(facts(r#"{"input":[1,2,3]}"#).token_ids, 3);
    assert_eq!(output(r#"{"prompt":[1,2,3],"max_tokens":10}"#), 10);
}

#[test]
fn a_share_of_the_maximum_is_estimated() {
    let rules = EstimateRules { output_share: 500, ..EstimateRules::default() };
    assert_eq!(facts(r#"{"max_tokens":1001}"#).estimate(&rules).output, 501);
    assert_eq!(facts("{}").estimate(&rules).output, 1024, "the default is no maximum of the client");
}

#[test]
fn text_counts_by_its_bytes() {
    let length = |body: &str| facts(body).text_bytes;
    assert_eq!(
        length(r#"{"a":"bcd"}"#),
        11,
        "all but whitespace: a definition of a tool is text as it stands"
    );
    assert_eq!(length(" \n{ \"a\" : \"b d\" }\r\n"), 11);
    assert_eq!(length(r#"{"a":"\n\"\\\/"}"#), 8 + 4);
    assert_eq!(length(r#"{"a":"\u0041\u00e9\u4e2d\ud83d\ude00"}"#), 8 + 1 + 2 + 3 + 4);
    assert_eq!(length(r#"{"a":"\ud83dx\ude00\ud83d"}"#), 8 + 3 + 1 + 3 + 3, "halves of pairs");
    assert_eq!(length(r#"{"a":[1,true,{}]}"#), 17);
    assert_eq!(
        RequestFacts::read(b"{\"a\":\"\xff\xfe\"}").unwrap().text_bytes,
        10 + 4,
        "a replacement has three bytes"
    );
    assert_eq!(facts(r#"{"a":"bcd"}"#).estimate(&EstimateRules::default()).input, 3, "rounded up");
    let rules = EstimateRules { bytes_per_token: 0, ..EstimateRules::default() };
    assert_eq!(facts("{}").estimate(&rules).input, 2);
}

#[test]
fn nothing_that_is_added_lowers_the_estimate() {
    let base = json!({"messages": [{"role": "user", "content": "x".repeat(4000)}], "max_tokens": 2000});
    let before = estimate(&base);
    for (name, value) in [
        ("max_completion_tokens", json!(1)),
        ("n", json!(0)),
        ("data", json!("AAAA")),
        ("image_url", json!("data:image/png;base64,AAAA")),
        ("metadata", json!({"type": "text"})),
        ("stream_options", json!({})),
        ("prompt", json!([])),
        ("type", json!("image")),
    ] {
        let mut more = base.clone();
        more[name] = value;
        let after = estimate(&more);
        assert!(after.input >= before.input && after.output >= before.output, "{name}");
    }
}

#[test]
fn media_count_by_number_and_size() {
    let image = base64(8000);
    let url = format!("data:image/png;base64,{image}");
    for part in [
        json!({"type": "image_url", "image_url": {"url": url}}),
        json!({"type": "input_image", "image_url": url}),
        json!({"type": "input_image", "image_url": image}),
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}),
        json!({"inlineData": {"mimeType": "image/png", "data": image}}),
        json!({"inline_data": {"mime_type": "image/png", "data": image}}),
        json!({"type": "input_audio", "input_audio": {"data": image, "format": "wav"}}),
        json!({"type": "file", "file": {"file_data": format!("data:application/pdf;base64,{image}==")}}),
        json!({"b64_json": image}),
    ] {
        let facts = facts(&json!({"messages": [{"content": [part]}]}).to_string());
        assert_eq!(facts.media.count(), 1, "{part}");
        assert!(facts.text_bytes < 200, "{part}");
        assert_eq!(facts.media.tokens(1000), 1000);
    }
    let large = facts(&json!({"input": [{"content": [{"image_url": base64(4_000_000)}]}]}).to_string());
    assert_eq!(large.media.tokens(1000), 10_000);
    let escaped = r#"{"contents":[{"parts":[{"image_url":"data:image\/png;base64,AA\/\/"}]}]}"#;
    assert_eq!(facts(escaped).media.count(), 1);
    let two = facts(r#"{"messages":[{"content":[{"data":"AAAA"},{"data":"AAAA"}]}]}"#);
    assert_eq!(two.estimate(&EstimateRules::default()).input, 2000 + two.text_bytes.div_ceil(4));
}

#[test]
fn references_to_media_count_beside_their_text() {
    for part in [
        json!({"image_url": {"url": "https://example.com/a.png"}}),
        json!({"image_url": "https://example.com/a.png"}),
        json!({"source": {"type": "url", "url": "https://example.com/a.png"}}),
        json!({"fileData": {"fileUri": "https://example.com/v1/files/a"}}),
        json!({"type": "input_file", "file_id": "file-1"}),
    ] {
        let facts = facts(&json!({"messages": [{"content": [part]}]}).to_string());
        assert_eq!(facts.media.count(), 1, "{part}");
        assert!(facts.text_bytes > 40, "{part}");
    }
}

#[test]
fn text_that_looks_like_media_is_text() {
    let data = base64(8000);
    let url = format!("data:image/png;base64,{data}");
    for body in [
        json!({"messages": [{"content": url}]}),
        json!({"messages": [{"content": [{"type": "text", "text": url}]}]}),
        json!({"messages": [{"content": [{"type": "text", "data": data}]}]}),
        json!({"prompt": url}),
        json!({"input": url}),
        json!({"input": [url]}),
        json!({"tools": [{"parameters": {"data": data, "image_url": {"url": url}}}]}),
        json!({"messages": [{"tool_calls": [{"function": {"arguments": {"data": data}}}]}]}),
        json!({"messages": [{"content": [{"type": "tool_use", "input": {"data": data}}]}]}),
        json!({"contents": [{"parts": [{"functionCall": {"args": {"data": data}}}]}]}),
        json!({"messages": [{"content": [{"source": {"type": "text", "media_type": "text/plain", "data": data}}]}]}),
        json!({"messages": [{"content": [{"source": {"data": data, "type": "text"}}]}]}),
        json!({"contents": [{"parts": [{"inlineData": {"mimeType": "text/csv", "data": data}}]}]}),
        json!({"messages": [{"content": [{"image_url": {"url": format!("data:text/plain;base64,{data}")}}]}]}),
        json!({"messages": [{"content": [{"image_url": {"url": format!("data:image/png;base64,{data} and text")}}]}]}),
        json!({"messages": [{"content": [{"data": format!("{data}!")}]}]}),
        json!({"messages": [{"content": [{"data": format!("{data}===")}]}]}),
        json!({"messages": [{"content": [{"data": format!("{data}=A")}]}]}),
    ] {
        assert!(facts(&body.to_string()).text_bytes >= 8000, "{}", &body.to_string()[..100]);
    }
}

#[test]
fn several_models_are_none() {
    assert_eq!(facts(r#"{"model":"a","model":"a"}"#).model.as_deref(), Some("a"));
    for body in [
        r#"{"model":"a","model":"b"}"#,
        r#"{"model":"a","Model":"b","model":"a"}"#,
        r#"{"a":{"model":"b"}}"#,
        r#"{"model":5}"#,
    ] {
        assert_eq!(facts(body).model, None, "{body}");
    }
    assert_eq!(facts(r#"{"model":"meta\/llama \u00e9"}"#).model.as_deref(), Some("meta/llama é"));
    assert_eq!(facts(&format!(r#"{{"model":"{}"}}"#, "a".repeat(129))).model, None);
}

#[test]
fn streams_are_recognized() {
    for (body, is_stream, include_usage) in [
        ("{}", false, None),
        (r#"{"stream":false}"#, false, None),
        (r#"{"stream":null}"#, false, None),
        (r#"{"stream":true,"stream":false}"#, true, None),
        (r#"{"stream":"true"}"#, true, None),
        (r#"{"stream":true,"stream_options":{"include_usage":true}}"#, true, Some(true)),
        (
            r#"{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}"#,
            true,
            Some(false),
        ),
        (r#"{"stream":true,"stream_options":{"include_usage":null}}"#, true, Some(false)),
        (r#"{"stream":true,"stream_options":null}"#, true, None),
    ] {
        let facts = facts(body);
        assert_eq!((facts.is_stream, facts.include_usage), (is_stream, include_usage), "{body}");
    }
}

#[test]
fn other_bodies_are_none() {
    for body in [
        "",
        " ",
        "null",
        "[]",
        "\"a\"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\":[1,]}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":tru}",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "{\"a\":\"\\\"",
        "{\"a\" 1}",
        "{\"a\":[1}",
        "{\"a\":-}",
        "{\"a\":+1}",
    ] {
        assert_eq!(RequestFacts::read(body.as_bytes()), None, "{body}");
    }
    let lenient = facts("\u{feff}{\"a\":NaN,\"b\":[-Infinity],\"max_tokens\":7} and more");
    assert_eq!(lenient.max_output, Some(7), "servers read these, too");
}

#[test]
fn hostile_bodies_take_linear_time() {
    for (start, unit, end) in [
        ("{\"a\":", "[", ""),
        ("{\"a\":", "{\"a\":", ""),
        ("{\"a\":\"", "\\u4e2d", "\"}"),
        ("{\"a\":\"", "\\", ""),
        ("{\"a\":[", "1,", "1]}"),
        ("{", "\"data\":\"AA\",", "\"a\":1}"),
        ("{\"a\":1", " ", "}"),
        ("{\"", "_", "max_tokens\":5}"),
        ("{\"max_tokens\":", "9", "}"),
        ("{\"max_tokens\":0.", "9", "}"),
        ("{\"data\":\"", "=", "\"}"),
        ("{\"image_url\":\"data:", ";", ",\"}"),
    ] {
        let body = format!("{start}{}{end}", unit.repeat((2 << 20) / unit.len()));
        let _ = RequestFacts::read(body.as_bytes());
        let _ = with_stream_usage(body.as_bytes());
    }
    let mut deep = String::from("{\"max_tokens\":5,\"a\":");
    for _ in 0..100_000 {
        deep.push_str("[\"ab\",{\"max_tokens\":9,\"b\":");
    }
    deep.push('1');
    deep.push_str(&"}]".repeat(100_000));
    write!(deep, ",\"n\":2}}").unwrap();
    let facts = facts(&deep);
    assert_eq!(facts.max_output, Some(10), "read after what is too deep");
    assert_eq!(facts.text_bytes, deep.len() as u64);
}

#[test]
fn the_estimate_by_length_is_rounded_up() {
    let tokens = RequestFacts::by_length(4097, &EstimateRules::default());
    assert_eq!((tokens.input, tokens.output), (1025, 1024));
}
