//! TLS to Postgres, as its address asks for it.
//!
//! With `sslmode=require` a connection is encrypted, and the server's certificate and name are verified against the
//! authority in `sslrootcert=FILE`; or there is no connection. Otherwise TLS is not attempted: what could be talked out
//! of it protects nobody.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::database::SettingsError;

/// libpq's name for the file of the authority. The driver does not know it.
const AUTHORITY: &str = "sslrootcert=";

/// Why TLS cannot be had as the address asks for it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// `sslmode=require` alone.
    #[error(
        "sslmode=require in the database's address needs sslrootcert=FILE beside it, the certificate authority of the \
         server in PEM: no public authority signs databases"
    )]
    NoAuthority,
    /// `sslrootcert` alone.
    #[error("sslrootcert in the database's address protects nothing without sslmode=require")]
    NotRequired,
    /// The authority's file is missing or holds no certificate in PEM.
    #[error("cannot read the database's certificate authority in {path}")]
    Read { path: PathBuf, source: pem::Error },
    /// A certificate in that file is no authority.
    #[error("the certificates cannot be used")]
    Unusable(#[from] rustls::Error),
}

/// Parses the database's address. The authority's file is read now and not again.
pub(crate) fn parse(url: &str) -> Result<(Config, MakeRustlsConnect), SettingsError> {
    let (url, authority) = take_authority(url);
    let mut config: Config = url.parse().map_err(SettingsError::Url)?;
    let roots = match (config.get_ssl_mode(), authority) {
        (SslMode::Require, Some(path)) => trusting(&path)?,
        (SslMode::Require, None) => return Err(TlsError::NoAuthority.into()),
        (_, Some(_)) => return Err(TlsError::NotRequired.into()),
        (_, None) => {
            config.ssl_mode(SslMode::Disable);
            RootCertStore::empty()
        }
    };
    Ok((config, MakeRustlsConnect::new(client(roots)?)))
}

/// The address without the parameter, and what the parameter said. The last one counts, as in libpq.
fn take_authority(url: &str) -> (String, Option<PathBuf>) {
    // The last question mark: one before it may be part of a password.
    let Some((address, parameters)) = url.rsplit_once('?') else { return (url.to_owned(), None) };
    let (authorities, others): (Vec<_>, Vec<_>) = parameters.split('&').partition(|one| one.starts_with(AUTHORITY));
    let authority = authorities.last().and_then(|one| one.strip_prefix(AUTHORITY));
    let authority = authority.map(|path| OsString::from_vec(percent_decode_str(path).collect()).into());
    (format!("{address}?{}", others.join("&")), authority)
}

fn trusting(authority: &Path) -> Result<RootCertStore, TlsError> {
    let unreadable = |source| TlsError::Read { path: authority.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).map_err(unreadable)? {
        roots.add(certificate.map_err(unreadable)?)?;
    }
    if roots.is_empty() { Err(unreadable(pem::Error::NoItemsFound)) } else { Ok(roots) }
}

fn client(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    // The provider is named: another crate may have turned on a second one, and then there is no default.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_taken_out_of_the_address() {
        for (url, left, authority) in [
            ("postgres://h/d", "postgres://h/d", None),
            ("postgres://u:a?b@h/d", "postgres://u:a?b@h/d", None),
            ("postgres://h/d?sslrootcert=/ca.pem", "postgres://h/d?", Some("/ca.pem")),
            ("postgres://h?sslrootcert=a%20b&sslmode=require", "postgres://h?sslmode=require", Some("a b")),
            ("postgres://u:a?b@h/d?x=1&sslrootcert=a&y=2&sslrootcert=b", "postgres://u:a?b@h/d?x=1&y=2", Some("b")),
        ] {
            assert_eq!(take_authority(url), (left.to_owned(), authority.map(PathBuf::from)), "{url}");
        }
    }

    #[test]
    fn without_require_tls_is_not_attempted() {
        for url in ["postgres://h/d", "postgres://h/d?sslmode=prefer"] {
            assert_eq!(parse(url).unwrap().0.get_ssl_mode(), SslMode::Disable);
        }
    }
}
