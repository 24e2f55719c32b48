//! TLS: who is trusted, and that nothing is said to anybody else.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use agentrun::domain::action::Answer;
use agentrun::domain::failure::Code;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, Stream};

use super::provider::Provider;
use super::{Desk, refusal, words};

const CONTRACT: &str = "version: a\nsend: { http: { url: https://localhost:PORT/x, inside: true } }\n";

/// Answers one request with 201; gives how many bytes of it were understood.
fn server(name: &str) -> (u16, String, JoinHandle<usize>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        let mut secure = ServerConnection::new(Arc::new(settings)).unwrap();
        let mut stream = Stream::new(&mut secure, &mut tcp);
        let mut bytes = [0; 4096];
        let understood = stream.read(&mut bytes).unwrap_or(0);
        if understood > 0 {
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        understood
    });
    (port, cert.pem(), answering)
}

fn desk(port: u16, trusted: &str) -> Desk {
    let mut desk = Desk::new(&CONTRACT.replace("PORT", &port.to_string()), &Provider::new());
    let file = desk.path("trusted.pem");
    std::fs::write(&file, trusted).unwrap();
    desk.environment.insert("SSL_CERT_FILE".into(), file.into());
    desk
}

#[test]
fn r_a17_a_server_with_a_trusted_certificate_is_spoken_to() {
    let (port, certificate, answering) = server("localhost");
    let answer = desk(port, &certificate).send();
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    assert!(answering.join().unwrap() > 0);
}

#[test]
fn f55_a_certificate_that_is_not_trusted_or_of_another_name_is_no_effect() {
    let (_, other, _) = server("localhost");
    for (name, trusted) in [("localhost", Some(other)), ("elsewhere.example", None)] {
        let (port, certificate, answering) = server(name);
        let answer = desk(port, trusted.as_deref().unwrap_or(&certificate)).send();
        assert_eq!(refusal(&answer), (Code::TemporaryProviderError, true), "{name}");
        assert!(words(&answer).contains("no secure connection"), "{answer:?}");
        assert_eq!(answering.join().unwrap(), 0, "not a byte of the request was said");
    }
}
