//! What clients of gRPC hear of a refusal beside its code.

use tonic::Status;

use super::*;

/// A proxy with a limit of one call an hour, routes that refuse by themselves, and these lines.
fn refusing(lines: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.one]\nrate = \"1/hour\"\n{lines}\n\
         [[routes]]\npath = \"/test.Calls/One\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/test.Calls/Never\"\nrespond = {{ status = 429 }}\n\
         [[routes]]\npath = \"/test.Calls/Later\"\nrespond = {{ status = 503, body = \"later\" }}\n\
         response_headers = {{ set = {{ retry-after = \"7\" }} }}\n\
         [[routes]]\npath = \"/test.Calls/Date\"\nrespond = {{ status = 503, body = \"then\" }}\n\
         response_headers = {{ set = {{ retry-after = \"Fri, 31 Dec 1999 23:59:59 GMT\" }} }}\n"
    ))
}

/// What the client of this library makes of a refused call.
async fn refusal(proxy: &Tidegate, method: &str) -> Status {
    GrpcClient::connect(url(proxy), None).await.unary(method, "").await.unwrap_err()
}

fn header<'s>(status: &'s Status, name: &str) -> Option<&'s str> {
    status.metadata().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_operators_own_words_come_as_they_were_written() {
    let proxy = refusing("[answers]\ndenied = { body = \" 100 % für heute\\nvorbei; {retry_after} s\\n\" }");
    refusal(&proxy, "One").await;
    let status = refusal(&proxy, "One").await;
    let wait = header(&status, "retry-after").unwrap();
    assert_eq!(status.message(), format!("100 % für heute\nvorbei; {wait} s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_answer_becomes_a_short_message() {
    // Each character takes three bytes, and escaped nine.
    let body = "€".repeat(20_000);
    let proxy = refusing(&format!("[answers]\ndenied = {{ body = \"{body}\" }}"));
    refusal(&proxy, "One").await;
    let status = refusal(&proxy, "One").await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "€".repeat(1024 / 3));
}
