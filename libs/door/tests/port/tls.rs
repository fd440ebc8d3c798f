//! TLS at a port.

use roadstead_door::listener::{Listener, Settings};
use roadstead_proto::api::v1::HealthRequest;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::world::{Port, SOON};

#[tokio::test]
async fn with_a_certificate_the_port_speaks_tls_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = roadstead_door::tls::Files { certificate, key };
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let port = Port::with(settings).await;

    let ca = tonic::transport::Certificate::from_pem(made.cert.pem());
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
    let files = roadstead_door::tls::Files { certificate: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let error = Listener::bind(settings).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/cert.pem"), "{error}");
}
