//! gRPC calls: all kinds, errors, deadlines, cancellation, drain and reload.

use super::*;

/// Calls of each kind.
async fn assert_all_kinds_pass(client: &GrpcClient) {
    let mut request = Request::new(Bytes::from_static(b"hello"));
    let bytes = MetadataValue::from_bytes(&[0, 255, 10, 13]);
    request.metadata_mut().insert("x-word", "said".parse().unwrap());
    request.metadata_mut().insert_bin("x-bytes-bin", bytes.clone());
    let response = client.unary_with("Echo", request).await.unwrap();
    assert_eq!(response.get_ref(), "hello");
    assert_eq!(response.metadata().get("x-word").unwrap(), "said");
    assert_eq!(response.metadata().get_bin("x-bytes-bin").unwrap(), bytes);

    let all = client.download("Count", "300 1000").await.unwrap().rest().await.unwrap();
    assert_eq!((all.len(), all.iter().map(Bytes::len).sum()), (300, 300_000));

    let messages = tokio_stream::iter((0..50).map(|_| Bytes::from(vec![b'x'; 1000])));
    assert_eq!(client.upload("Sum", messages).await.unwrap().into_inner(), "50000");

    let (say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    for number in 0..20 {
        // Each message is echoed before the next one is sent.
        let message = Bytes::from(format!("message {number}"));
        say.send(message.clone()).await.unwrap();
        assert_eq!(heard.next().await.unwrap(), Some(message));
    }
    drop(say);
    assert_eq!(heard.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_of_all_kinds_are_forwarded() {
    let (server, _proxy, client) = over_plaintext().await;
    assert_all_kinds_pass(&client).await;
    assert_eq!(server.connections(), 1);
    eventually("all calls are finished", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_of_all_kinds_are_forwarded_over_tls() {
    let (server, _proxy, client) = over_tls().await;
    assert_all_kinds_pass(&client).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_status_keeps_its_details_and_metadata() {
    let (_server, _proxy, client) = over_plaintext().await;
    let mut request = Request::new(Bytes::from_static(b"what?"));
    request.metadata_mut().insert("x-word", "said".parse().unwrap());
    request.metadata_mut().insert_bin("x-bytes-bin", MetadataValue::from_bytes(&[0, 200]));
    let status = client.unary_with("Fail", request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message(), status.details()),
        (Code::NotFound, "no such thing: ü", &b"\0why"[..])
    );
    assert_eq!(status.metadata().get("x-word").unwrap(), "said");
    assert_eq!(status.metadata().get_bin("x-bytes-bin").unwrap(), MetadataValue::from_bytes(&[0, 200]));
    // In trailers, after a message.
    let mut heard = client.download("Half", "").await.unwrap();
    assert_eq!(heard.next().await.unwrap().unwrap(), "half");
    let status = heard.next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "the rest is gone"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_deadline_is_forwarded_and_ends_the_call() {
    let (server, _proxy, client) = over_plaintext().await;
    let mut request = Request::new(Bytes::new());
    request.set_timeout(Duration::from_mins(5));
    client.unary_with("Echo", request).await.unwrap();
    assert_eq!(server.metadata().get("grpc-timeout").unwrap(), "300000m");
    let mut request = Request::new(Bytes::new());
    request.set_timeout(Duration::from_millis(300));
    let status = client.unary_with("Wait", request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    eventually("the call is cancelled at the server", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cancellation_reaches_the_server() {
    let (server, _proxy, client) = over_plaintext().await;
    // Before the response.
    let (waiting, other) = (client.clone(), client.clone());
    let call = tokio::spawn(async move { waiting.unary("Wait", "").await });
    eventually("the server has the call", || server.open() == 1);
    call.abort();
    eventually("the call is cancelled at the server", || server.open() == 0);
    // During the response.
    let mut heard = client.download("Count", "1000000 1000").await.unwrap();
    heard.next().await.unwrap();
    assert_eq!(server.open(), 1);
    drop(heard);
    eventually("the call is cancelled at the server", || server.open() == 0);
    assert_eq!(other.unary("Echo", "on").await.unwrap().into_inner(), "on");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_messages_pass_both_ways() {
    let (_server, _proxy, client) = over_plaintext().await;
    let large: Bytes = (0..16_u32 << 20).map(|number| (number % 251) as u8).collect();
    let response = client.unary("Echo", large.clone()).await.unwrap().into_inner();
    // Without `assert_eq!`, which would print both.
    assert!(response == large);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_share_a_connection() {
    let (server, _proxy, client) = over_plaintext().await;
    let calls = (0..500).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let message = Bytes::from(format!("call {number}"));
            assert_eq!(client.unary("Echo", message.clone()).await.unwrap().into_inner(), message);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    // A connection carries 128 streams, and the client opens no more at once.
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_denied_call_gets_retry_after() {
    let (server, _proxy, client) = over_plaintext().await;
    let sum = || client.unary("Sum", "abc");
    let response = sum().await.unwrap();
    assert_eq!(response.metadata().get("x-ratelimit-remaining").unwrap(), "1");
    assert_eq!(
        response.metadata().get("x-request-id").unwrap(),
        server.metadata().get("x-request-id").unwrap()
    );
    sum().await.unwrap();
    let status = sum().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("the limit two is used up; try again in "), "{status}");
    let said = |name| status.metadata().get(name).unwrap().to_str().unwrap().parse::<u64>().unwrap();
    assert!((1700..=1800).contains(&said("retry-after")), "{status}");
    assert_eq!(said("grpc-retry-pushback-ms"), 1000 * said("retry-after"));
    assert!(status.metadata().contains_key("x-request-id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_above_max_body_is_rejected() {
    let (server, _proxy, client) = over_plaintext().await;
    let status = client.unary("Sum", vec![0; 100 << 10]).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "the request body is larger than the route allows")
    );
    eventually("the call is cancelled at the server", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_holds_its_slot_to_the_end_of_its_stream() {
    let (server, _proxy, client) = over_plaintext().await;
    for _ in 0..2 {
        let (say, said) = channel(1);
        let mut heard = client.talk("Held", ReceiverStream::new(said)).await.unwrap();
        say.send("hello".into()).await.unwrap();
        assert_eq!(heard.next().await.unwrap().unwrap(), "hello");
        let status = client.unary("Held", "").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        drop(say);
        assert_eq!(heard.next().await.unwrap(), None);
        assert_eq!(client.unary("Held", "again").await.unwrap().into_inner(), "again");
    }
    // A cancelled call releases the slot, too.
    let (say, said) = channel(1);
    let heard = client.talk("Held", ReceiverStream::new(said)).await.unwrap();
    drop((heard, say));
    eventually("the call is cancelled at the server", || server.open() == 0);
    client.unary("Held", "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn upstream_failures_have_a_grpc_status() {
    let server = GrpcServer::start(None);
    let proxy = proxy_for(&server, "", "response_timeout = \"300ms\"");
    let client = GrpcClient::connect(url(&proxy), None).await;
    let status = client.unary("Wait", "").await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::DeadlineExceeded, "the upstream did not respond in time")
    );
    eventually("the call is cancelled at the server", || server.open() == 0);
    let proxy = Tidegate::start(&configuration(&server, "", "").replace(&server.url(), "http://127.0.0.1:1"));
    let client = GrpcClient::connect(url(&proxy), None).await;
    let status = client.unary("Echo", "").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the upstream can't be reached"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_bidirectional_call_survives_timeouts_and_reloads() {
    let server = GrpcServer::start(None);
    let short = (
        "body_timeout = \"200ms\"\nidle_timeout = \"200ms\"",
        "stall_timeout = \"200ms\"\nresponse_timeout = \"200ms\"",
    );
    let proxy = proxy_for(&server, short.0, short.1);
    let client = GrpcClient::connect(url(&proxy), None).await;
    let (say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    for word in ["one", "two"] {
        // Real time is tested: any other response or request body would time out.
        tokio::time::sleep(Duration::from_millis(700)).await;
        say.send(word.into()).await.unwrap();
        assert_eq!(heard.next().await.unwrap().unwrap(), word);
        proxy.reload(&configuration(&server, short.0, short.1));
    }
    drop(say);
    assert_eq!(heard.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_bidirectional_call_ends_after_tunnel_timeout() {
    let server = GrpcServer::start(None);
    let proxy = proxy_for(&server, "tunnel_timeout = \"300ms\"", "");
    let client = GrpcClient::connect(url(&proxy), None).await;
    let (_say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    heard.next().await.unwrap_err();
    eventually("the call is cancelled at the server", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bidirectional_call_finishes_during_a_drain() {
    let server = GrpcServer::start(None);
    let mut proxy = proxy_for(&server, "", "");
    let client = GrpcClient::connect(url(&proxy), None).await;
    let (say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    proxy.signal("TERM");
    proxy.wait_log("draining");
    for word in ["one", "two"] {
        say.send(word.into()).await.unwrap();
        assert_eq!(heard.next().await.unwrap().unwrap(), word);
    }
    drop(say);
    assert_eq!(heard.next().await.unwrap(), None);
    assert_eq!(proxy.wait().code(), Some(0));
}
