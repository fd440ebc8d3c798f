//! Whether the caller of a long call is still who its credential said.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use roadstead_proto::method::Method;
use roadstead_service_kit::clock;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;
use tonic::Status;

use super::{Chain, Credential, Principal, check};

/// What the caller of one call was recognised by.
#[derive(Clone)]
pub struct Standing {
    chain: Arc<Chain>,
    method: Method,
    /// None if no credential was presented.
    token: Option<SecretString>,
    principal: Principal,
    until: Option<SystemTime>,
    changes: watch::Receiver<u64>,
    /// Up to which change the credential was looked at.
    looked: u64,
}

impl Standing {
    pub(super) async fn of(chain: Arc<Chain>, method: Method, credential: Credential<'_>) -> Result<Self, Status> {
        // Before the credential is looked at: a change meanwhile has it looked at again.
        let changes = chain.changes.subscribe();
        let looked = *changes.borrow();
        let (principal, until) = chain.authenticate(method, credential).await?;
        let token = match credential {
            Credential::Bearer(token) => Some(token.to_owned().into()),
            Credential::Nothing => None,
        };
        Ok(Self { chain, method, token, principal, until, changes, looked })
    }

    /// The caller.
    #[must_use]
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Waits until the caller is no longer recognised as the same, and says with what the call ends: `UNAUTHENTICATED`
    /// if the credential is no longer good, `PERMISSION_DENIED` if whom it stands for now may not call the method, and
    /// `UNAVAILABLE` if they may, but are no longer the same. May be cancelled.
    pub async fn lapses(&mut self) -> Status {
        loop {
            let looked = self.looked;
            tokio::select! {
                // Fails only if the chain is gone, which is held here.
                _ = self.changes.wait_for(|changes| *changes != looked) => {}
                () = passes(self.until) => {}
            }
            if let Err(status) = self.look_again().await {
                return status;
            }
        }
    }

    async fn look_again(&mut self) -> Result<(), Status> {
        let changes = *self.changes.borrow();
        let credential = match &self.token {
            Some(token) => Credential::Bearer(token.expose_secret()),
            None => Credential::Nothing,
        };
        let (principal, until) = self.chain.authenticate(self.method, credential).await?;
        check(&self.method.rule(), &principal)?;
        if principal != self.principal {
            return Err(Status::unavailable("what you are known as has changed; call again"));
        }
        (self.looked, self.until) = (changes, until);
        Ok(())
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Standing").field(&self.principal).finish()
    }
}

/// Waits until that time has come.
async fn passes(time: Option<SystemTime>) {
    match time {
        Some(time) => tokio::time::sleep(time.duration_since(clock::now()).unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use http::header::AUTHORIZATION;
    use http::{HeaderMap, HeaderValue};
    use prost_types::Timestamp;
    use tonic::Code;

    use super::*;
    use crate::auth::{LocalDev, StaticTokens};

    const TOKEN: &str = "0123456789abcdef";

    fn file(entry: &str) -> String {
        format!(r#"{{"tokens": [{{"token": "{TOKEN}", "subject": "alice"{entry}}}]}}"#)
    }

    async fn standing(chain: &Arc<Chain>, token: &str) -> Standing {
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap())]);
        chain.recognise(Method::WatchSandbox, &headers).await.unwrap()
    }

    fn code(standing: &mut Standing) -> Option<Code> {
        standing.lapses().now_or_never().map(|status| status.code())
    }

    #[tokio::test]
    async fn a_caller_stands_as_long_as_its_credential_says_the_same() {
        for (after, expected) in [
            (file(""), None),
            (file(r#", "roles": ["other"]"#), Some(Code::Unavailable)),
            (file(r#", "scopes": ["other:read"]"#), Some(Code::PermissionDenied)),
            (file(r#", "expires": "1970-01-01T00:00:00Z""#), Some(Code::Unauthenticated)),
            (r#"{"tokens": []}"#.to_owned(), Some(Code::Unauthenticated)),
        ] {
            let tokens = StaticTokens::parse(&file("")).unwrap();
            let chain = Arc::new(Chain::new().then(tokens.clone()).then(LocalDev));
            let mut local = chain.recognise(Method::WatchSandbox, &HeaderMap::new()).await.unwrap();
            let mut alice = standing(&chain, TOKEN).await;
            tokens.replace(&after).unwrap();
            assert_eq!(code(&mut alice), None, "nobody has said so");
            chain.changed();
            assert_eq!(code(&mut alice), expected, "{after}");
            assert_eq!(code(&mut local), None);
        }
    }

    #[tokio::test]
    async fn a_caller_stands_until_its_credential_expires() {
        let expires = clock::now() + Duration::from_secs(3600);
        let tokens = StaticTokens::parse(&file(&format!(r#", "expires": "{}""#, Timestamp::from(expires)))).unwrap();
        let chain = Arc::new(Chain::new().then(tokens.clone()));
        let mut alice = standing(&chain, TOKEN).await;
        assert_eq!(alice.until, Some(expires));
        tokens.replace(&file(r#", "expires": "1970-01-01T00:00:00Z""#)).unwrap();
        assert_eq!(code(&mut alice), None, "it is not looked at before");
        alice.until = Some(clock::now());
        assert_eq!(alice.lapses().await.code(), Code::Unauthenticated);
    }
}
