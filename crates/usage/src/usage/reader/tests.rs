//! What is read of responses: usage in each dialect, numbers at pointers, and counted output.

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod properties;

/// Reads a body in parts of this length.
fn in_parts(framing: Framing, body: &[u8], length: usize, pointers: &[&str]) -> Observed {
    let mut reader = UsageReader::new(framing, pointers);
    body.chunks(length).for_each(|part| reader.push(part));
    reader.finish()
}

/// Reads a body, and sees to it that all splits of it are read equally.
fn read(framing: Framing, body: impl AsRef<[u8]>) -> Observed {
    let body = body.as_ref();
    let whole = in_parts(framing, body, body.len().max(1), &[]);
    assert_eq!(in_parts(framing, body, 1, &[]), whole);
    for at in 0..body.len() {
        let mut reader = UsageReader::new(framing, &[]);
        reader.push(&body[..at]);
        reader.push(&body[at..]);
        assert_eq!(reader.finish(), whole, "split at {at}");
    }
    whole
}

fn tokens(input: u64, output: u64) -> Tokens {
    Tokens { input, output, ..Tokens::default() }
}

#[test]
fn chat_completions_are_read() {
    let body = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,
        "message":{"role":"assistant","content":"say \"usage\":{\"completion_tokens\":99}","usage":{"completion_tokens":98}},
        "finish_reason":"stop"}],"usage":{"prompt_tokens":30,"completion_tokens":40,"total_tokens":70,
        "prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":5,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":7,"completion_tokens":77}},"service_tier":"default"}"#;
    let read = read(Framing::Json, body);
    assert_eq!(
        read.tokens,
        Some(Tokens { input: 30, cached_input: 10, cache_write: 5, output: 40, reasoning: 7 })
    );
    assert_eq!(read.model.as_deref(), Some("gpt-4o-mini-2024-07-18"));
    assert_eq!(read.dialect, Some(Dialect::OpenAiChat));
    assert!(read.is_whole && read.unknown.is_none());
    let embeddings = br#"{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    assert_eq!(super::tests::read(Framing::Json, embeddings).tokens, Some(tokens(8, 0)));
}

#[test]
fn chat_streams_are_read() {
    let mut body = String::from(": ping\n\n");
    for text in ["", "Hel", "lo", " wörld"] {
        let event = json!({"object": "chat.completion.chunk", "model": "m", "choices": [{"delta": {"content": text}}], "usage": null});
        body.extend(["data: ", &event.to_string(), "\n\n"]);
    }
    let without = read(Framing::EventStream, &body);
    assert_eq!((without.tokens, without.counted_output), (None, 3));
    assert_eq!(without.unknown, Some(Unknown::Absent));
    body +=
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n";
    let with = read(Framing::EventStream, &body);
    assert_eq!(with.tokens, Some(tokens(11, 5)));
    assert_eq!(with.model.as_deref(), Some("m"));
    assert!(with.is_whole);
}

#[test]
fn responses_are_read() {
    let body = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"model\":\"gpt-5\",\"usage\":null}}\n\n\
        event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hello there, world\"}\n\n\
        event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"sequence_number\":2,\"text\":\"Hello there, world\"}\n\n\
        event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"model\":\"gpt-5-2025\",\
        \"output\":[{\"content\":[{\"text\":\"Hello there, world\"}],\"usage\":{\"input_tokens\":1}}],\"usage\":{\"input_tokens\":36,\
        \"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":87,\"output_tokens_details\":{\"reasoning_tokens\":1}}}}\n\n";
    let read = read(Framing::EventStream, body);
    assert_eq!(
        read.tokens,
        Some(Tokens { input: 36, cached_input: 3, cache_write: 0, output: 87, reasoning: 1 })
    );
    assert_eq!((read.dialect, read.next_sequence), (Some(Dialect::OpenAiResponses), 4));
    assert_eq!(read.counted_output, 3, "18 bytes of text, once");
    assert_eq!(read.model.as_deref(), Some("gpt-5-2025"));
    let image = "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"AA\",\
        \"usage\":{\"input_tokens\":5,\"output_tokens\":6,\"total_tokens\":11}}\n\n";
    assert_eq!(super::tests::read(Framing::EventStream, image).tokens, Some(tokens(5, 6)));
}

#[test]
fn anthropic_streams_are_read() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"model-x\",\"content\":[],\"usage\":\
        {\"input_tokens\":25,\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":200,\"cache_creation\":\
        {\"ephemeral_5m_input_tokens\":100},\"output_tokens\":1}}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n";
    let early = read(Framing::EventStream, start);
    assert_eq!(
        early.tokens,
        Some(Tokens { input: 325, cached_input: 200, cache_write: 100, output: 1, reasoning: 0 })
    );
    assert_eq!((early.dialect, early.counted_output), (Some(Dialect::Anthropic), 1));
    assert_eq!(early.model.as_deref(), Some("model-x"));
    let end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15,\
        \"output_tokens_details\":{\"thinking_tokens\":4}}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let read = read(Framing::EventStream, format!("{start}{end}"));
    assert_eq!(
        read.tokens,
        Some(Tokens { input: 325, cached_input: 200, cache_write: 100, output: 15, reasoning: 4 })
    );
}

#[test]
fn gemini_is_read_as_events_and_as_an_array() {
    let first = json!({"candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}], "modelVersion": "gemini-x",
        "usageMetadata": {"promptTokenCount": 4}});
    let last = json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"a": "b"}}}]}}],
        "usageMetadata": {"promptTokenCount": 4, "toolUsePromptTokenCount": 10, "cachedContentTokenCount": 3,
        "candidatesTokenCount": 6, "thoughtsTokenCount": 2}});
    let expected = Some(Tokens { input: 14, cached_input: 3, cache_write: 0, output: 8, reasoning: 2 });
    for (framing, body) in [
        (Framing::EventStream, format!("data: {first}\r\n\r\ndata: {last}\r\n\r\n")),
        (Framing::Json, format!("[{first}\n,\n{last}]")),
    ] {
        let read = read(framing, body);
        assert_eq!(read.tokens, expected);
        assert_eq!((read.dialect, read.counted_output), (Some(Dialect::Gemini), 2));
        assert_eq!(read.model.as_deref(), Some("gemini-x"));
    }
    let live = br#"{"usageMetadata":{"promptTokenCount":1,"responseTokenCount":2}}"#;
    assert_eq!(read(Framing::Json, live).tokens, Some(tokens(1, 2)));
}

#[test]
fn the_last_line_of_ollama_is_read() {
    let body = "{\"model\":\"llama3\",\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"done\":false}\n\
        {\"model\":\"llama3\",\"response\":\"there\",\"done\":false,\"eval_count\":9}\n\
        {\"eval_count\":290,\"model\":\"llama3\",\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":26}\n";
    let read = read(Framing::Lines, body);
    assert_eq!(read.tokens, Some(tokens(26, 290)));
    assert_eq!((read.dialect, read.counted_output), (Some(Dialect::Ollama), 2));
    let not_last = super::tests::read(Framing::Lines, "{\"done\":false,\"eval_count\":9}\n");
    assert_eq!(not_last.tokens, None);
    let one = super::tests::read(Framing::Json, "{\"done\":true,\"prompt_eval_count\":2,\"eval_count\":3}");
    assert_eq!(one.tokens, Some(tokens(2, 3)));
}

#[test]
fn usage_elsewhere_is_not_read() {
    for body in [
        r#"{"a":{"usage":{"prompt_tokens":1}}}"#,
        r#"{"data":[{"usage":{"prompt_tokens":1}}]}"#,
        r#"[{"usage":{"prompt_tokens":1}}]"#,
        r#"{"usage":[{"prompt_tokens":1}]}"#,
        r#"{"usage":"{\"prompt_tokens\":1}"}"#,
        r#"{"us\u0061ge":{"prompt_tokens":1}}"#,
        r#"{"usage":{"prompt\u005ftokens":1}}"#,
        r#"{"usage":null}"#,
        r#"{"usage":5}"#,
        r#"{"usage":{"prompt_tokens":null}}"#,
        r#"{"usage":{"tokens":{"input_tokens":1}}}"#,
        r#"{"prompt_tokens":1,"promptTokenCount":1}"#,
        r#"{"message":{"message":{"usage":{"input_tokens":1}}}}"#,
        "{}",
    ] {
        let read = read(Framing::Json, body);
        assert_eq!((read.tokens, read.unknown), (None, Some(Unknown::Absent)), "{body}");
    }
}

#[test]
fn values_that_are_no_whole_numbers_are_malformed() {
    for value in [
        "1e400",
        "-1",
        "1.5",
        "12.0",
        "\"12\"",
        "true",
        "{}",
        "[1]",
        "18446744073709551616",
        "1e3",
        &"9".repeat(30),
    ] {
        let read =
            read(Framing::Json, format!(r#"{{"usage":{{"prompt_tokens":{value},"completion_tokens":1}}}}"#));
        assert_eq!((read.tokens, read.unknown), (None, Some(Unknown::Malformed)), "{value}");
        assert!(read.is_whole);
    }
    let most =
        read(Framing::Json, r#"{"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":5}}"#);
    assert_eq!(most.tokens.map(|it| it.input), Some(u64::MAX));
}

#[test]
fn the_last_value_of_each_field_counts() {
    let body = r#"{"usage":{"prompt_tokens":1,"prompt_tokens":2,"completion_tokens":1},"usage":{"completion_tokens":9,"prompt_tokens":null}}"#;
    assert_eq!(read(Framing::Json, body).tokens, Some(tokens(2, 9)));
    let repeated = "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n".repeat(3);
    assert_eq!(read(Framing::EventStream, repeated).tokens, Some(tokens(5, 1)));
    let aliases = br#"{"usage":{"prompt_tokens":100,"cache_read_input_tokens":80,"cache_creation_input_tokens":10,"completion_tokens":1}}"#;
    assert_eq!(read(Framing::Json, aliases).tokens, Some(tokens(100, 1)), "parts of prompt_tokens");
}

#[test]
fn a_duration_has_no_tokens() {
    let read = read(Framing::Json, r#"{"text":"hi","usage":{"type":"duration","seconds":3}}"#);
    assert_eq!((read.tokens, read.unknown), (None, Some(Unknown::Type)));
    let tokens = super::tests::read(
        Framing::Json,
        r#"{"usage":{"type":"tokens","input_tokens":3,"output_tokens":4}}"#,
    );
    assert_eq!(tokens.tokens, Some(super::tests::tokens(3, 4)));
}

#[test]
fn malformed_and_cut_bodies_are_not_whole() {
    for body in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "tru",
        "truE",
        "01",
        "-",
        "1.",
        "1e",
        "1e+",
        "+1",
        "\"\\x\"",
        "\"\\u12g4\"",
        "{}{}",
        "{}x",
        "[}",
        "{]",
        "nul",
        "\"a",
        "[\"a\"",
        ",",
        "\u{feff}",
    ] {
        let read = read(Framing::Json, body);
        assert!(!read.is_whole, "{body}");
    }
    let cut = read(Framing::Json, r#"{"usage":{"prompt_tokens":12,"completion_tokens":34"#);
    assert_eq!((cut.tokens, cut.is_whole), (Some(tokens(12, 0)), false), "a cut number is unknown");
    let cut = read(Framing::Json, r#"{"usage":{"prompt_tokens":12"#);
    assert_eq!((cut.tokens, cut.unknown), (None, Some(Unknown::Malformed)));
    assert!(read(Framing::Json, "\u{feff}{}").is_whole);
    let lines = read(Framing::Lines, "{\"a\":1\n{\"done\":true,\"eval_count\":3}\n");
    assert_eq!((lines.tokens, lines.is_whole), (Some(tokens(0, 3)), false), "the next line is read");
}

#[test]
fn event_streams_are_split_as_specified() {
    for body in [
        "data: {\"usage\":\ndata: {\"prompt_tokens\":7,\"completion_tokens\":8}}\n\n",
        "data: {\"usage\":\rdata: {\"prompt_tokens\":7,\"completion_tokens\":8}}\r\r",
        "\u{feff}data:{\"usage\":\r\ndata:{\"prompt_tokens\":7,\r\ndata: \"completion_tokens\":8}}\r\n\r\n",
        ":data: x\nid: 1\nretry: 5\nevent: data\ndatax: {\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}\nid\n\n",
        "data\n\ndata:\n\ndata: ping\n\ndata: [DONE]\n\ndata: [1]\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}",
    ] {
        let read = read(Framing::EventStream, body);
        assert_eq!((read.tokens, read.is_whole), (Some(tokens(7, 8)), true), "{body}");
    }
    let joined = read(Framing::EventStream, "data: {\"usage\":{\"prompt_tokens\":1\ndata: 2}}\n\n");
    assert_eq!(joined.unknown, None);
    assert!(!joined.is_whole, "the newline ends the number");
}

#[test]
fn the_places_between_events_are_known() {
    for (framing, body, expected) in [
        (Framing::EventStream, "", true),
        (Framing::EventStream, ": comment\n", true),
        (Framing::EventStream, ": comm", false),
        (Framing::EventStream, "data: {}", false),
        (Framing::EventStream, "data: {}\n", false),
        (Framing::EventStream, "event: a\n: comment\n", false),
        (Framing::EventStream, "data: {}\n\n", true),
        (Framing::EventStream, "data: {}\r\n\r", true),
        (Framing::EventStream, "data: {}\r\n\r\n", true),
        (Framing::Lines, "", true),
        (Framing::Lines, "{}", false),
        (Framing::Lines, "{}\n", true),
        (Framing::Json, "{}", false),
    ] {
        let mut reader = UsageReader::new(framing, &[]);
        for byte in body.bytes() {
            reader.push(&[byte]);
        }
        assert_eq!(reader.is_between_events(), expected, "{body:?}");
    }
}

#[test]
fn pointers_find_the_last_number() {
    let pointers = ["/cost", "/a/b/1", "/a~1b/~0", "", "/x/0/y", "no pointer", "/s", "/nested"];
    let body = br#"{"cost":3,"cost":null,"a":{"b":[1,22,3],"c":{"b":[5,6]}},"a/b":{"~":4},"x":[{"y":7}],"s":"8","nested":{"nested":1}}"#;
    let read = in_parts(Framing::Json, body, 3, &pointers);
    let numbers = [3, 22, 4].map(Value::Number);
    assert_eq!(read.values[..3], numbers);
    assert_eq!(
        read.values[3..],
        [Value::Invalid, Value::Number(7), Value::Absent, Value::Invalid, Value::Invalid]
    );
    assert_eq!(read.unknown_value(0), None);
    assert_eq!(read.unknown_value(5), Some(Unknown::Absent));
    assert_eq!(read.unknown_value(6), Some(Unknown::Malformed));
    assert_eq!(in_parts(Framing::Json, b"42", 1, &[""]).values, [Value::Number(42)]);
    let events = b"data: {\"cost\":1}\n\ndata: {\"cost\":2}\n\ndata: {}\n\n";
    assert_eq!(in_parts(Framing::EventStream, events, 5, &["/cost"]).values, [Value::Number(2)]);
    let long = "n".repeat(300);
    let body = format!("{{\"{long}\":5}}");
    assert_eq!(
        in_parts(Framing::Json, body.as_bytes(), 7, &[&format!("/{long}")]).values,
        [Value::Number(5)]
    );
}

#[test]
fn models_are_bounded() {
    let model = |text: &str| read(Framing::Json, format!(r#"{{"model":"{text}"}}"#)).model;
    assert_eq!(model("meta\\/llama").as_deref(), Some("meta/llama"));
    assert_eq!(model(&"m".repeat(128)).as_deref(), Some(&*"m".repeat(128)));
    assert_eq!(model(&"m".repeat(129)), None);
    assert_eq!(model(""), None);
    assert_eq!(read(Framing::Json, b"{\"model\":\"\xff\"}").model, None);
}

#[test]
fn hostile_bodies_are_read_in_bounded_memory() {
    assert!(size_of::<UsageReader>() <= 1024, "{}", size_of::<UsageReader>());
    for unit in [
        "[",
        "{\"a\":",
        "[{\"usage\":",
        "\"",
        "\\",
        "{\"usage\":{\"prompt_tokens\":9",
        "\0",
        "1",
        "\n",
        "data:",
        "data: [",
        "\r",
    ] {
        let body = unit.repeat((1 << 20) / unit.len());
        for framing in [Framing::Json, Framing::EventStream, Framing::Lines] {
            let _ = in_parts(framing, body.as_bytes(), 1400, &["/usage/prompt_tokens"]);
        }
    }
    let deep = format!("{}{}", "[".repeat(512), "]".repeat(512));
    assert!(in_parts(Framing::Json, deep.as_bytes(), 100, &[]).is_whole);
    let deeper = format!("{}{}", "[".repeat(513), "]".repeat(513));
    assert!(!in_parts(Framing::Json, deeper.as_bytes(), 100, &[]).is_whole);
    let odd = b"{\"a\xff\":\"\xfe\xc0\x00\",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
    assert_eq!(read(Framing::Json, odd).tokens, Some(tokens(1, 2)));
    let mut reader = UsageReader::new(Framing::EventStream, &[]);
    reader.push(b"data: {\"response\":{\"output\":\"");
    let part = b"The quick fox said \\\"usage\\\":{\\\"output_tokens\\\":9} and left.\\n ".repeat(1000);
    for _ in 0..20_000_000 / part.len() {
        reader.push(&part);
    }
    reader.push(b"\",\"usage\":{\"output_tokens\":87}}}\n\n");
    assert_eq!(reader.finish().tokens, Some(tokens(0, 87)));
}
