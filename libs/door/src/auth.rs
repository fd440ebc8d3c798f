//! Who calls. A chain of authenticators looks at the one credential that a call presents.
//!
//! There is no falling through: a credential that is presented and not accepted ends the call, whatever else the
//! connection or the configuration would allow. Every refusal reads the same.

mod bootstrap_token;
mod local_dev;
mod rule;
mod sandbox_token;
mod standing;
mod static_tokens;
mod token_file;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use roadstead_proto::internal;
use roadstead_proto::method::Method;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tonic::Status;

pub use bootstrap_token::BootstrapTokens;
pub use local_dev::LocalDev;
pub use rule::check;
pub use sandbox_token::SandboxTokens;
pub use standing::Standing;
pub use static_tokens::{StaticTokens, StaticTokensError};
pub use token_file::TokenFile;

/// A caller who has been recognised.
#[derive(Clone, PartialEq)]
pub enum Principal {
    /// A person or a program acting for one.
    User(Arc<internal::User>),
    /// A supervisor acting for its sandbox.
    Sandbox(Arc<internal::SandboxIdentity>),
}

impl Principal {
    /// The form for a sealed command. A sandbox's token goes along: admission verifies it again.
    #[must_use]
    pub fn for_command(&self) -> internal::Principal {
        use internal::principal::Kind;
        let kind = match self {
            Self::User(user) => Kind::User(internal::User::clone(user)),
            Self::Sandbox(sandbox) => Kind::Sandbox(internal::SandboxIdentity::clone(sandbox)),
        };
        internal::Principal { kind: Some(kind) }
    }

    /// The form for a read, which travels unsealed and therefore without a token.
    #[must_use]
    pub fn for_read(&self) -> internal::Principal {
        use internal::principal::Kind;
        let mut principal = self.for_command();
        if let Some(Kind::Sandbox(sandbox)) = &mut principal.kind {
            sandbox.token.clear();
        }
        principal
    }

    /// What stands for this caller where callers are counted: a hash, so that no one's name is kept.
    #[must_use]
    pub fn caller(&self) -> [u8; 32] {
        let parts: &[&str] = match self {
            Self::User(user) => &["user", &user.provider, &user.issuer, &user.subject],
            Self::Sandbox(sandbox) => &["sandbox", &sandbox.sandbox_id],
        };
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => formatter.debug_tuple("User").field(&user.subject).finish(),
            Self::Sandbox(sandbox) => formatter.debug_tuple("Sandbox").field(&sandbox.sandbox_id).finish(),
        }
    }
}

/// The one credential of a call.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// The token of an `authorization: Bearer` header.
    Bearer(&'a str),
    /// No credential at all.
    Nothing,
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::Nothing => "Nothing",
        })
    }
}

/// What an authenticator says of a credential.
#[derive(Debug)]
pub enum Verdict {
    /// Not of the kind it knows: the next one is asked.
    OtherKind,
    /// The caller, and until when the credential says so; for good if nothing is said.
    Accepted(Principal, Option<SystemTime>),
    /// Of the kind it knows, and no good. The reason is for the log; it holds nothing of the credential.
    Refused(&'static str),
}

/// A verdict that may take a while.
pub type Pending<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// Knows one kind of credential.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Looks at the credential of a call of `method`.
    fn authenticate<'a>(&'a self, method: Method, credential: Credential<'a>) -> Pending<'a>;
}

/// The authenticators of a door, in the order in which they are asked.
#[derive(Debug)]
pub struct Chain {
    authenticators: Vec<Box<dyn Authenticator>>,
    /// Rises when a credential that was accepted may not be any more.
    changes: watch::Sender<u64>,
}

impl Chain {
    /// A chain that recognises nobody until something is added.
    #[must_use]
    pub fn new() -> Self {
        Self { authenticators: Vec::new(), changes: watch::Sender::new(0) }
    }

    /// Asks this authenticator after the ones before.
    #[must_use]
    pub fn then(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticators.push(Box::new(authenticator));
        self
    }

    /// Says that credentials that were accepted may not be any more: whoever has a long call open is looked at again.
    pub fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Recognises the caller of `method`.
    ///
    /// # Errors
    ///
    /// `UNAUTHENTICATED`, with the same text for every cause.
    pub async fn recognise(self: &Arc<Self>, method: Method, headers: &HeaderMap) -> Result<Standing, Status> {
        let credential = credential(headers).map_err(refused)?;
        Standing::of(Arc::clone(self), method, credential).await
    }

    async fn authenticate(
        &self,
        method: Method,
        credential: Credential<'_>,
    ) -> Result<(Principal, Option<SystemTime>), Status> {
        match self.ask(method, credential).await {
            Verdict::Accepted(principal, until) => Ok((principal, until)),
            Verdict::Refused(reason) => Err(refused(reason)),
            Verdict::OtherKind => Err(refused("nobody knows this kind of credential")),
        }
    }

    async fn ask(&self, method: Method, credential: Credential<'_>) -> Verdict {
        for authenticator in &self.authenticators {
            match authenticator.authenticate(method, credential).await {
                Verdict::OtherKind => {}
                decided => return decided,
            }
        }
        Verdict::OtherKind
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

fn refused(reason: &'static str) -> Status {
    tracing::debug!(reason, "not authenticated");
    Status::unauthenticated("a valid credential is required")
}

/// Finds the credential in the headers of a call.
fn credential(headers: &HeaderMap) -> Result<Credential<'_>, &'static str> {
    let mut presented = headers.get_all(AUTHORIZATION).iter();
    let Some(header) = presented.next() else { return Ok(Credential::Nothing) };
    if presented.next().is_some() {
        return Err("more than one authorization header");
    }
    let header = header.to_str().map_err(|_| "the authorization header is not text")?;
    let (scheme, token) = header.split_once(' ').ok_or("the authorization header has no token")?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err("the authorization scheme is not Bearer");
    }
    if token.is_empty() || token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("the bearer token is empty or has blanks");
    }
    Ok(Credential::Bearer(token))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tonic::Code;

    use super::*;

    const USER_TOKEN: &str = "a-token-of-twenty-letters";

    fn chain() -> Arc<Chain> {
        let tokens = format!(r#"{{"tokens": [{{"token": "{USER_TOKEN}", "subject": "alice"}}]}}"#);
        Arc::new(Chain::new().then(StaticTokens::parse(&tokens).unwrap()).then(LocalDev))
    }

    async fn subject_of(values: &[&str]) -> Result<String, Status> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        match chain().recognise(Method::GetSandbox, &headers).await?.principal() {
            Principal::User(user) => Ok(user.subject.clone()),
            Principal::Sandbox(_) => panic!("no sandbox can be recognised here"),
        }
    }

    #[tokio::test]
    async fn one_good_credential_is_accepted_and_none_is_the_local_user() {
        assert_eq!(subject_of(&[&format!("Bearer {USER_TOKEN}")]).await.unwrap(), "alice");
        assert_eq!(subject_of(&[&format!("bearer {USER_TOKEN}")]).await.unwrap(), "alice");
        assert_eq!(subject_of(&[]).await.unwrap(), "local-dev");
    }

    #[tokio::test]
    async fn a_presented_credential_that_fails_never_becomes_the_local_user() {
        let good = format!("Bearer {USER_TOKEN}");
        let almost = format!("Bearer {}", &USER_TOKEN[1..]);
        let longer = format!("Bearer {USER_TOKEN}x");
        let basic = format!("Basic {USER_TOKEN}");
        let padded = format!("Bearer  {USER_TOKEN}");
        for values in [
            &[""][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer wrong"],
            &["Bearer eyJhbGciOiJub25lIn0.e30."],
            &[USER_TOKEN],
            &[&almost],
            &[&longer],
            &[&basic],
            &[&padded],
            &[&good, &good],
            &[&good, "Bearer wrong"],
            &["", &good],
        ] {
            let refusal = subject_of(values).await.unwrap_err();
            assert_eq!(refusal.code(), Code::Unauthenticated, "{values:?}");
            assert_eq!(refusal.message(), "a valid credential is required", "{values:?}");
        }
    }

    #[tokio::test]
    async fn an_empty_chain_recognises_nobody() {
        let refusal = Arc::new(Chain::new()).recognise(Method::GetSandbox, &HeaderMap::new()).await.unwrap_err();
        assert_eq!(refusal.code(), Code::Unauthenticated);
    }

    #[test]
    fn callers_are_told_apart_by_every_part_of_their_identity() {
        let user = |provider: &str, issuer: &str, subject: &str| {
            Principal::User(Arc::new(internal::User {
                provider: provider.to_owned(),
                issuer: issuer.to_owned(),
                subject: subject.to_owned(),
                ..Default::default()
            }))
        };
        let sandbox = internal::SandboxIdentity { sandbox_id: "c".to_owned(), ..Default::default() };
        let callers = [
            user("a", "b", "c").caller(),
            user("a", "", "bc").caller(),
            user("ab", "", "c").caller(),
            user("a", "b", "d").caller(),
            Principal::Sandbox(Arc::new(sandbox)).caller(),
        ];
        for (at, caller) in callers.iter().enumerate() {
            assert!(!callers[at + 1..].contains(caller));
        }
        assert_eq!(callers[0], user("a", "b", "c").caller());
    }
}
