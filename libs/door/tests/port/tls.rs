//! TLS at a port.

use std::path::Path;
use std::time::Duration;

use roadstead_door::listener::{Listener, Settings};
use roadstead_door::tls::Files;
use roadstead_proto::api::v1::HealthRequest;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::world::{Port, SOON, settings};

/// A certificate for `localhost` and its key, in files of this folder, and the certificate itself.
fn made(folder: &Path) -> (Files, String) {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (Files { certificate, key }, made.cert.pem())
}

#[tokio::test]
async fn with_a_certificate_the_port_speaks_tls_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (files, authority) = made(folder.path());
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let port = Port::with(settings).await;

    let ca = tonic::transport::Certificate::from_pem(authority);
    let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{}", port.address)).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.unwrap();
    OpenShellClient::new(channel).health(HealthRequest {}).await.unwrap();

    let mut plain = TcpStream::connect(port.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: door\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Ends with the connection; a reset is an end too.
    let _reset = timeout(SOON, plain.read_to_end(&mut answer)).await.expect("the connection is closed");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let files = Files { certificate: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let error = Listener::bind(settings).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/cert.pem"), "{error}");
}

#[tokio::test]
async fn a_handshake_that_stops_midway_is_let_go_and_holds_up_no_stop() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Some(made(folder.path()).0);
    let begin = Duration::from_millis(300);
    // The head of a record with the first words of a client, and nothing after.
    let begun = [0x16, 3, 1, 1, 0, 1, 0];

    let port = Port::with(Settings { tls: tls.clone(), begin, ..settings() }).await;
    let mut stuck = TcpStream::connect(port.address).await.unwrap();
    stuck.write_all(&begun).await.unwrap();
    let mut heard = Vec::new();
    let _reset = timeout(SOON, stuck.read_to_end(&mut heard)).await.expect("the connection is closed");

    let port = Port::with(Settings { tls, ..settings() }).await;
    let mut stuck = TcpStream::connect(port.address).await.unwrap();
    stuck.write_all(&begun).await.unwrap();
    port.shows("door_connections", 1).await;
    assert!(port.stop().await < Duration::from_secs(2));
}
