//! Where keys are published.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedIssuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Upstream, patience};

/// A server that publishes keys, which can change.
pub struct Publisher {
    upstream: Upstream,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Publisher {
    /// Publishes these.
    pub fn new(jwks: &str) -> Self {
        let answer = Arc::new(Mutex::new(ok(jwks)));
        let shared = Arc::clone(&answer);
        let upstream = Upstream::scripted(move |caller| {
            while let Ok(Some(_)) = caller.request() {
                let answer = shared.lock().unwrap().clone();
                let is_last = answer.windows(17).any(|bytes| bytes == b"Connection: close");
                if caller.try_send(answer).is_err() || is_last {
                    return;
                }
            }
        });
        Self { upstream, answer }
    }

    /// Publishes others from now on.
    pub fn publish(&self, jwks: &str) {
        self.answer(ok(jwks));
    }

    /// Answers so from now on.
    pub fn answer(&self, answer: impl Into<Vec<u8>>) {
        *self.answer.lock().unwrap() = answer.into();
    }

    /// Where.
    pub fn url(&self) -> String {
        self.upstream.url() + "/keys?a=b"
    }

    /// How many requests it has received.
    pub fn asked(&self) -> usize {
        self.upstream.requests().len()
    }

    /// The head of its first request.
    pub fn first(&self) -> super::Message {
        self.upstream.requests()[0].clone()
    }
}

/// A response with a body.
fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into()
}

/// Publishes keys over TLS: its port, and its authority's certificate as PEM. It serves until the tests end.
pub fn publish_over_tls(jwks: &str) -> (u16, String) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = ok(jwks);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(patience())).unwrap();
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            let mut head = Vec::new();
            let mut byte = [0];
            // A client that does not trust the certificate disconnects before it sends a request.
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(&answer);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (port, authority.pem())
}
