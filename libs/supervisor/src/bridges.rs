//! Where bridges are: those that are known from the beginning, and those that a bridge names.

use tonic::transport::{Certificate, Endpoint};

use crate::calls;
use crate::client::StartError;
use crate::settings::Settings;

/// The bridges of a supervisor.
#[derive(Debug)]
pub(crate) struct Bridges {
    pub(crate) known: Vec<Endpoint>,
    authority: Option<Certificate>,
    /// All that are known are spoken to by TLS: so is any other.
    secure: bool,
}

impl Bridges {
    pub(crate) fn of(settings: &Settings) -> Result<Self, StartError> {
        if settings.bridges.is_empty() {
            return Err(StartError::NoBridge);
        }
        let authority = match &settings.ca {
            Some(path) => Some(Certificate::from_pem(std::fs::read(path).map_err(StartError::Authority)?)),
            None => None,
        };
        let known = settings.bridges.iter().map(|address| calls::endpoint(address, authority.as_ref()));
        let secure = settings.bridges.iter().all(|address| is_secure(address));
        Ok(Self { known: known.collect::<Result<_, _>>()?, authority, secure })
    }

    /// The bridge at an address that another one named. None: the sandbox's token is not to be sent there, or cannot be.
    pub(crate) fn peer(&self, address: &str) -> Option<Endpoint> {
        let endpoint = calls::endpoint(address, self.authority.as_ref()).ok();
        let endpoint = endpoint.filter(|_| is_secure(address) || !self.secure);
        if endpoint.is_none() {
            tracing::warn!(address, "a redirect is not followed");
        }
        endpoint
    }
}

fn is_secure(address: &str) -> bool {
    address.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::TokenSource;

    fn bridges(address: &str) -> Bridges {
        let settings = Settings::new(address, "w", "s", TokenSource::Given("t".to_owned().into()));
        Bridges::of(&settings).unwrap()
    }

    #[test]
    fn a_redirect_never_leads_from_tls_to_plain_text_or_nowhere() {
        let (plain, secure) = (bridges("http://b:1"), bridges("https://b:1"));
        for (address, by_plain, by_secure) in
            [("http://c:1", true, false), ("https://c:1", true, true), ("", false, false), ("no address", false, false)]
        {
            assert_eq!(plain.peer(address).is_some(), by_plain, "{address}");
            assert_eq!(secure.peer(address).is_some(), by_secure, "{address}");
        }
    }
}
