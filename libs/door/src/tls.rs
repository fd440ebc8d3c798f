//! TLS for a listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Where a listener's certificate chain and private key are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The chain, the listener's own certificate first.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is missing or is not PEM of that kind.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("the certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Loads certificate and key.
///
/// # Errors
///
/// Says which file is at fault.
pub fn acceptor(files: &Files) -> Result<TlsAcceptor, Error> {
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| read_error(&files.certificate, source))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| read_error(&files.key, source))?;

    // The provider is named: another crate may have turned on a second one, and then there is no default.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_error(path: &Path, source: rustls::pki_types::pem::Error) -> Error {
    Error::Read { path: path.to_owned(), source }
}
