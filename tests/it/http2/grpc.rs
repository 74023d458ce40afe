//! Local replies to gRPC calls.

use http::HeaderValue;

use super::*;
use crate::support::Http2Server;

/// A proxy with limited routes, one to an unreachable server, and one to this server.
fn proxy_for(server: &Http2Server) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.one]\nrate = \"1/hour\"\n[limits.none]\nrate = \"1/hour\"\nblock = [\"127.0.0.0/8\"]\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n\
         [upstreams.gone]\nservers = [\"http://127.0.0.1:1\"]\nprotocol = \"h2\"\n\
         [[routes]]\npath = \"/s.S/Limited\"\nlimits = [\"one\"]\nupstream = \"u\"\n\
         [[routes]]\npath = \"/s.S/Blocked\"\nlimits = [\"none\"]\nupstream = \"u\"\n\
         [[routes]]\npath = \"/s.S/Gone\"\nupstream = \"gone\"\n\
         [[routes]]\npath = \"/s.S/*\"\nupstream = \"u\"\n",
        server.url()
    ))
}

#[test]
fn rejected_calls_get_a_grpc_status() {
    let server = Http2Server::echo();
    let proxy = proxy_for(&server);
    let client = Http2::connect(proxy.addr());
    let call = |path: &str, kind: &str| {
        let request = request("POST", path).header("content-type", kind).header("te", "trailers");
        client.ask(request.body(()).unwrap(), b"\0\0\0\0\0")
    };
    assert_eq!(call("/s.S/Limited", "application/grpc").status(), 200);
    for (path, code, message) in [
        ("/s.S/Limited", "8", "the limit one is used up; try again in "),
        ("/s.S/Blocked", "7", "this client is blocked"),
        ("/s.S/Gone", "14", "the upstream can't be reached"),
        ("/other", "12", "no route matches this request"),
        ("/s.S/%00", "13", ""),
    ] {
        for kind in ["application/grpc", "application/grpc+proto"] {
            let answer = call(path, kind);
            let header = |name: &str| answer.response.headers().get(name).map(|it| it.to_str().unwrap());
            assert_eq!((answer.status(), header("grpc-status")), (200, Some(code)), "{path}");
            assert_eq!((header("content-type"), answer.text()), (Some("application/grpc"), ""));
            assert_eq!(header("cache-control"), Some("no-store"));
            assert!(header("grpc-message").unwrap().starts_with(message), "{:?}", header("grpc-message"));
            let wait = header("retry-after").map(|wait| wait.to_owned() + "000");
            assert_eq!(header("grpc-retry-pushback-ms"), wait.as_deref());
            assert_eq!(wait.is_some(), code == "8");
            assert_eq!(header("x-ratelimit-remaining"), Some("0").filter(|_| code == "8"));
        }
    }
    // Other content types get HTTP status codes.
    assert_eq!(call("/s.S/Limited", "application/grpc-web").status(), 429);
}

#[test]
fn only_post_requests_get_a_grpc_status() {
    let server = Http2Server::echo();
    let proxy = proxy_for(&server);
    let client = Http2::connect(proxy.addr());
    for method in ["GET", "HEAD", "PUT", "POST"] {
        for (path, status) in [("/s.S/Blocked", 403), ("/s.S/Gone", 502), ("/other", 404), ("/s.S/%00", 400)]
        {
            let request = request(method, path).header("content-type", "application/grpc");
            let answer = client.ask(request.body(()).unwrap(), b"");
            let is_call = method == "POST";
            let headers = answer.response.headers();
            assert_eq!(answer.status(), if is_call { 200 } else { status }, "{method} {path}");
            assert_eq!(headers.contains_key("grpc-status"), is_call, "{method} {path}");
        }
    }
}

#[test]
fn unannounced_response_trailers_are_forwarded() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(_, mut respond)| async move {
        let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        body.send_data(Bytes::from_static(b"\0\0\0\0\0"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("5"));
        trailers.insert("grpc-message", HeaderValue::from_static("no such thing"));
        body.send_trailers(trailers).unwrap();
    });
    let proxy = proxy_for(&server);
    let client = Http2::connect(proxy.addr());
    let request = request("POST", "/s.S/Find").header("content-type", "application/grpc");
    let trailers = client.ask(request.body(()).unwrap(), b"\0\0\0\0\0").trailers.unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"5".parse().unwrap(), &"no such thing".parse().unwrap())
    );
}
