//! gRPC, with its library at both ends.

use super::*;

/// Calls of each kind.
async fn assert_all_kinds_pass(client: &GrpcClient) {
    let mut request = Request::new(Bytes::from_static(b"hello"));
    let bytes = MetadataValue::from_bytes(&[0, 255, 10, 13]);
    request.metadata_mut().insert("x-word", "said".parse().unwrap());
    request.metadata_mut().insert_bin("x-bytes-bin", bytes.clone());
    let answer = client.unary_with("Echo", request).await.unwrap();
    assert_eq!(answer.get_ref(), "hello");
    assert_eq!(answer.metadata().get("x-word").unwrap(), "said");
    assert_eq!(answer.metadata().get_bin("x-bytes-bin").unwrap(), bytes);

    let all = client.download("Count", "300 1000").await.unwrap().rest().await.unwrap();
    assert_eq!((all.len(), all.iter().map(Bytes::len).sum()), (300, 300_000));

    let messages = tokio_stream::iter((0..50).map(|_| Bytes::from(vec![b'x'; 1000])));
    assert_eq!(client.upload("Sum", messages).await.unwrap().into_inner(), "50000");

    let (say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    for number in 0..20 {
        // Each is answered before the next one is said.
        let message = Bytes::from(format!("message {number}"));
        say.send(message.clone()).await.unwrap();
        assert_eq!(heard.next().await.unwrap(), Some(message));
    }
    drop(say);
    assert_eq!(heard.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_of_all_kinds_pass() {
    let (server, _proxy, client) = in_the_clear().await;
    assert_all_kinds_pass(&client).await;
    assert_eq!(server.connections(), 1);
    eventually("all calls are done", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_of_all_kinds_pass_over_tls() {
    let (server, _proxy, client) = over_tls().await;
    assert_all_kinds_pass(&client).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failure_passes_with_all_that_it_says() {
    let (_server, _proxy, client) = in_the_clear().await;
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
async fn a_deadline_reaches_the_server_and_ends_the_call() {
    let (server, _proxy, client) = in_the_clear().await;
    let mut request = Request::new(Bytes::new());
    request.set_timeout(Duration::from_mins(5));
    client.unary_with("Echo", request).await.unwrap();
    assert_eq!(server.metadata().get("grpc-timeout").unwrap(), "300000m");
    let mut request = Request::new(Bytes::new());
    request.set_timeout(Duration::from_millis(300));
    let status = client.unary_with("Wait", request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    eventually("the server has heard of it", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_is_cancelled_is_over_for_the_server() {
    let (server, _proxy, client) = in_the_clear().await;
    // Before an answer.
    let (asking, other) = (client.clone(), client.clone());
    let asked = tokio::spawn(async move { asking.unary("Wait", "").await });
    eventually("it is called", || server.open() == 1);
    asked.abort();
    eventually("the server has heard of it", || server.open() == 0);
    // In the middle of one.
    let mut heard = client.download("Count", "1000000 1000").await.unwrap();
    heard.next().await.unwrap();
    assert_eq!(server.open(), 1);
    drop(heard);
    eventually("the server has heard that nobody listens", || server.open() == 0);
    assert_eq!(other.unary("Echo", "on").await.unwrap().into_inner(), "on");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_messages_pass_both_ways() {
    let (_server, _proxy, client) = in_the_clear().await;
    let large: Bytes = (0..16_u32 << 20).map(|number| (number % 251) as u8).collect();
    let answer = client.unary("Echo", large.clone()).await.unwrap().into_inner();
    // They are too large to be shown.
    assert!(answer == large);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_share_a_connection() {
    let (server, _proxy, client) = in_the_clear().await;
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
    // One worker has one connection for 128 of them, and no client asks more at once.
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_is_refused_is_told_when_to_come_again() {
    let (server, _proxy, client) = in_the_clear().await;
    let sum = || client.unary("Sum", "abc");
    let answer = sum().await.unwrap();
    assert_eq!(answer.metadata().get("x-ratelimit-remaining").unwrap(), "1");
    assert_eq!(
        answer.metadata().get("x-request-id").unwrap(),
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
async fn a_call_that_says_too_much_is_refused() {
    let (server, _proxy, client) = in_the_clear().await;
    let status = client.unary("Sum", vec![0; 100 << 10]).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "the request body is larger than the route allows")
    );
    eventually("the server has heard of it", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_holds_its_slot_to_the_end_of_its_stream() {
    let (server, _proxy, client) = in_the_clear().await;
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
    // One that is cancelled gives it back as well, though more could be said.
    let (say, said) = channel(1);
    let heard = client.talk("Held", ReceiverStream::new(said)).await.unwrap();
    drop((heard, say));
    eventually("the server has heard that it is cancelled", || server.open() == 0);
    client.unary("Held", "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_fails_on_the_way_has_a_status_of_its_own() {
    let server = GrpcServer::start(None);
    let proxy = before(&server, "", "response_timeout = \"300ms\"");
    let client = GrpcClient::connect(url(&proxy), None).await;
    let status = client.unary("Wait", "").await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::DeadlineExceeded, "the upstream did not respond in time")
    );
    eventually("the server has heard of it", || server.open() == 0);
    let proxy = Tidegate::start(&configuration(&server, "", "").replace(&server.url(), "http://127.0.0.1:1"));
    let client = GrpcClient::connect(url(&proxy), None).await;
    let status = client.unary("Echo", "").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the upstream can't be reached"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_may_be_silent_and_outlives_a_reload() {
    let server = GrpcServer::start(None);
    let short = (
        "body_timeout = \"200ms\"\nidle_timeout = \"200ms\"",
        "stall_timeout = \"200ms\"\nresponse_timeout = \"200ms\"",
    );
    let proxy = before(&server, short.0, short.1);
    let client = GrpcClient::connect(url(&proxy), None).await;
    let (say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    for word in ["one", "two"] {
        // Longer than anything else may be silent here.
        tokio::time::sleep(Duration::from_millis(700)).await;
        say.send(word.into()).await.unwrap();
        assert_eq!(heard.next().await.unwrap().unwrap(), word);
        proxy.reload(&configuration(&server, short.0, short.1));
    }
    drop(say);
    assert_eq!(heard.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_that_is_silent_for_too_long_ends() {
    let server = GrpcServer::start(None);
    let proxy = before(&server, "tunnel_timeout = \"300ms\"", "");
    let client = GrpcClient::connect(url(&proxy), None).await;
    let (_say, said) = channel(1);
    let mut heard = client.talk("Echo", ReceiverStream::new(said)).await.unwrap();
    heard.next().await.unwrap_err();
    eventually("the server has heard of it", || server.open() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_comes_to_its_end_while_the_proxy_drains() {
    let server = GrpcServer::start(None);
    let mut proxy = before(&server, "", "");
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
