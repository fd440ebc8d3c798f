//! TLS to Postgres, where the address asks for it with `sslmode=require`: verified against the machine's roots, or those
//! that `SSL_CERT_FILE` names. Without it there is none; what may be done without is for the settings to say.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::{Config, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why TLS was asked for and cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Neither the machine nor `SSL_CERT_FILE` has a certificate to trust.
    #[error("no root certificates were found; SSL_CERT_FILE may name a file with some")]
    NoRoots,
    /// The library refuses its settings.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// Makes TLS connections that trust a set of roots.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// What the address asks for; none if it does not.
    pub(crate) fn wanted(config: &Config) -> Result<Option<Self>, TlsError> {
        match config.get_ssl_mode() {
            SslMode::Require => Self::trusting(rustls_native_certs::load_native_certs().certs).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn trusting(certificates: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(TlsError::NoRoots);
        }
        // The provider is named: another crate may have turned on a second one, and then there is no default.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        Ok(Handshake { connector: self.0.clone(), server: ServerName::try_from(host.to_owned())? })
    }
}

/// A handshake with the server of that name, to come.
pub(crate) struct Handshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(
            async move { self.connector.connect(self.server, socket).await.map(|stream| Stream(Box::new(stream))) },
        )
    }
}

/// An encrypted connection.
pub(crate) struct Stream(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for Stream {
    /// The server's certificate is verified; binding the password to it as well would add nothing.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use roadstead_embedded::account::Account;
    use roadstead_embedded::keep::Server;
    use roadstead_embedded::postgres::SUPERUSER;
    use roadstead_embedded::{PostgresServer, PostgresSettings};
    use roadstead_testkit::programs;
    use secrecy::ExposeSecret;

    use super::*;
    use crate::database::open;

    #[tokio::test]
    async fn a_connection_is_encrypted_and_the_server_known_or_there_is_none() {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        // Both files are named from the folder of the data.
        let settings = [("ssl", "on"), ("ssl_cert_file", "../own.crt"), ("ssl_key_file", "../own.key")];
        let server = PostgresServer::prepare(&PostgresSettings {
            bin: programs::servers().postgres_bin,
            folder: folder.path().join("postgres"),
            port: None,
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            durable: false,
        })
        .await
        .unwrap();
        for (name, text) in [("own.crt", cert.pem()), ("own.key", signing_key.serialize_pem())] {
            let path = server.folder().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(account) = Account::for_postgres().unwrap() {
                account.own(&path).unwrap();
            }
        }
        let running = server.start().await.unwrap();
        let mut config: Config =
            format!("postgres://localhost:{}/postgres?sslmode=require", server.port()).parse().unwrap();
        config.user(SUPERUSER).password(server.superuser_password().expose_secret());

        let known = Tls::trusting(vec![cert.der().clone()]).unwrap();
        let (client, connection) = open(&config, Some(known)).await.unwrap();
        let row = client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
        assert!(row.get::<_, bool>(0));
        drop(client);
        connection.await.unwrap();

        let stranger = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let stranger = Tls::trusting(vec![stranger.cert.der().clone()]).unwrap();
        assert!(open(&config, Some(stranger)).await.is_err());
        assert!(open(&config, None).await.is_err());
        running.stop(Duration::from_secs(20)).await.unwrap();
    }

    #[test]
    fn trusting_nobody_is_an_error() {
        assert!(matches!(Tls::trusting(Vec::new()), Err(TlsError::NoRoots)));
    }
}
