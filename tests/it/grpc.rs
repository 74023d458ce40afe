//! gRPC, with tonic at both ends.

mod calls;
mod denials;

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::channel;
use tonic::codegen::tokio_stream;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};
use tonic::{Code, Request};

use crate::support::{Authority, GrpcClient, GrpcServer, Tidegate, eventually};

/// A proxy in front of this server, with these lines in its listener and in its upstream.
fn proxy_for(server: &GrpcServer, listener: &str, upstream: &str) -> Tidegate {
    Tidegate::start(&configuration(server, listener, upstream))
}

fn configuration(server: &GrpcServer, listener: &str, upstream: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [limits.two]\nrate = \"2/hour\"\n\
         [limits.at-once]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n{upstream}\n\
         [[routes]]\npath = \"/test.Calls/Sum\"\nlimits = [\"two\"]\nmax_body = \"64KiB\"\nupstream = \"u\"\n\
         [[routes]]\npath = \"/test.Calls/Held\"\nlimits = [\"at-once\"]\nupstream = \"u\"\n\
         [[routes]]\npath = \"/test.Calls/*\"\nupstream = \"u\"\n",
        server.url()
    )
}

fn url(proxy: &Tidegate) -> String {
    format!("http://{}", proxy.addr())
}

/// A server, a proxy and a client that trust each other, with TLS on both sides.
async fn over_tls() -> (GrpcServer, Tidegate, GrpcClient) {
    let authority = Authority::new();
    authority.sign("server.test");
    authority.sign("proxy.test");
    authority.sign_client("tidegate");
    let pem = |file: &str| std::fs::read(authority.file(file)).unwrap();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(pem("server.test.pem"), pem("server.test.key")))
        .client_ca_root(Certificate::from_pem(pem("ca.pem")));
    let server = GrpcServer::start(Some(tls));
    let proxy = proxy_for(
        &server,
        &authority.listener("proxy.test"),
        &format!(
            "tls = {{ ca = \"{}\", server_name = \"server.test\", {} }}",
            authority.file("ca.pem").display(),
            authority.pair("tidegate")
        ),
    );
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem("ca.pem"))).domain_name("proxy.test");
    let client = GrpcClient::connect(format!("https://{}", proxy.addr()), Some(tls)).await;
    (server, proxy, client)
}

async fn over_plaintext() -> (GrpcServer, Tidegate, GrpcClient) {
    let server = GrpcServer::start(None);
    let proxy = proxy_for(&server, "", "");
    let client = GrpcClient::connect(url(&proxy), None).await;
    (server, proxy, client)
}
