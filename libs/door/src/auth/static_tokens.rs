//! Bearer tokens from a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use std::{fmt, fs, io};

use prost_types::Timestamp;
use roadstead_proto::internal::User;
use roadstead_proto::method::Method;
use roadstead_service_kit::clock;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Authenticator, Credential, Pending, Principal, Verdict};

/// A shorter token can be guessed.
const SHORTEST: usize = 16;
/// The identity providers that clients know.
const PROVIDERS: [&str; 4] = ["oidc", "mtls", "cloudflare_access", "local_dev"];
/// The roles that administrate the platform.
const ADMIN_ROLES: [&str; 2] = ["openshell-admin", "platform_admin"];

/// The tokens of a file, each with the user it stands for. Clones share them.
///
/// The file is JSON: `{"tokens": [{"token", "subject", "provider", "issuer", "display_name", "roles", "scopes",
/// "expires"}]}`, of which `token` and `subject` are required. The role `openshell-admin` administrates the platform.
/// Without `scopes` nothing is withheld. `expires` is a time as in RFC 3339, from which on the token is refused.
#[derive(Clone)]
pub struct StaticTokens(Arc<RwLock<Users>>);

/// By SHA-256 of the token, so that how long a look-up takes says nothing about the tokens there are.
type Users = HashMap<[u8; 32], Known>;

/// Whom a token stands for.
#[derive(Clone)]
struct Known {
    user: Arc<User>,
    until: Option<SystemTime>,
}

/// Why a file of tokens was not accepted. Never shows a token.
#[derive(Debug, thiserror::Error)]
pub enum StaticTokensError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file can be read by others than its owner.
    #[error("{path} can be read by others (mode {mode:03o}); make it 600")]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not JSON of the right shape. The position is all that is told: the text may be a token.
    #[error("not JSON of the expected shape at line {line}, column {column}")]
    Shape {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// An entry has a value that is not allowed.
    #[error("entry {entry}: {fault}")]
    Entry {
        /// Counted from 1.
        entry: usize,
        /// What is wrong with it.
        fault: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    token: SecretString,
    subject: String,
    #[serde(default = "default_provider")]
    provider: String,
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    display_name: String,
    #[serde(default)]
    roles: Vec<String>,
    scopes: Option<Vec<String>>,
    expires: Option<String>,
}

fn default_provider() -> String {
    "oidc".to_owned()
}

impl StaticTokens {
    /// Reads the file, which only its owner may be able to read.
    ///
    /// # Errors
    ///
    /// See [`StaticTokensError`].
    pub fn load(path: &Path) -> Result<Self, StaticTokensError> {
        Self::parse(&text(path)?)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    ///
    /// See [`StaticTokensError`].
    pub fn parse(text: &str) -> Result<Self, StaticTokensError> {
        users(text).map(|users| Self(Arc::new(RwLock::new(users))))
    }

    /// Takes the tokens of this text instead.
    pub(super) fn replace(&self, text: &str) -> Result<(), StaticTokensError> {
        let users = users(text)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = users;
        Ok(())
    }

    fn verdict(&self, token: &str, now: SystemTime) -> Verdict {
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match users.get(&digest(token)) {
            Some(Known { until: Some(until), .. }) if *until <= now => Verdict::Refused("a static token has expired"),
            Some(Known { user, until }) => Verdict::Accepted(Principal::User(Arc::clone(user)), *until),
            None => Verdict::OtherKind,
        }
    }
}

/// The text of a file that only its owner may be able to read.
pub(super) fn text(path: &Path) -> Result<Zeroizing<String>, StaticTokensError> {
    let unreadable = |source| StaticTokensError::Read { path: path.to_owned(), source };
    check_mode(path, &fs::metadata(path).map_err(unreadable)?)?;
    fs::read_to_string(path).map(Zeroizing::new).map_err(unreadable)
}

fn users(text: &str) -> Result<Users, StaticTokensError> {
    let file = serde_json::from_str::<File>(text)
        .map_err(|error| StaticTokensError::Shape { line: error.line(), column: error.column() })?;
    let mut users = HashMap::new();
    let mut identities = HashMap::new();
    for (at, entry) in file.tokens.into_iter().enumerate() {
        let fault = |fault| StaticTokensError::Entry { entry: at + 1, fault };
        let token = digest(entry.token.expose_secret());
        let known = entry.known().map_err(fault)?;
        // Membership goes by subject alone, so one subject must not be two people.
        let identity = (known.user.provider.clone(), known.user.issuer.clone());
        if *identities.entry(known.user.subject.clone()).or_insert_with(|| identity.clone()) != identity {
            return Err(fault("the subject is also one of another provider or issuer"));
        }
        if users.insert(token, known).is_some() {
            return Err(fault("the token is there twice"));
        }
    }
    Ok(users)
}

impl Entry {
    fn known(self) -> Result<Known, &'static str> {
        let token = self.token.expose_secret();
        if token.len() < SHORTEST || token.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("the token must be at least 16 visible ASCII characters");
        }
        if self.subject.is_empty() {
            return Err("the subject is empty");
        }
        if !PROVIDERS.contains(&self.provider.as_str()) {
            return Err("the provider must be oidc, mtls, cloudflare_access or local_dev");
        }
        if self.scopes.as_ref().is_some_and(Vec::is_empty) {
            return Err("an empty list of scopes would withhold everything; leave it out to withhold nothing");
        }
        let until = self.expires.map(|text| text.parse::<Timestamp>()).transpose();
        let until = until.ok().map(|until| until.map(SystemTime::try_from).transpose());
        let Some(Ok(until)) = until else { return Err("expires must be a time as in 2027-01-31T12:00:00Z") };
        let user = User {
            platform_admin: self.roles.iter().any(|role| ADMIN_ROLES.contains(&role.as_str())),
            provider: self.provider,
            issuer: self.issuer,
            subject: self.subject,
            display_name: self.display_name,
            roles: self.roles,
            scopes: self.scopes.unwrap_or_default(),
        };
        Ok(Known { user: Arc::new(user), until })
    }
}

impl Authenticator for StaticTokens {
    fn authenticate<'a>(&'a self, _: Method, credential: Credential<'a>) -> Pending<'a> {
        let verdict = match credential {
            Credential::Bearer(token) => self.verdict(token, clock::now()),
            Credential::Nothing => Verdict::OtherKind,
        };
        Box::pin(std::future::ready(verdict))
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(formatter, "StaticTokens({})", users.len())
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(unix)]
fn check_mode(path: &Path, metadata: &fs::Metadata) -> Result<(), StaticTokensError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(StaticTokensError::Mode { path: path.to_owned(), mode }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn parse(entries: &str) -> Result<StaticTokens, StaticTokensError> {
        StaticTokens::parse(&format!(r#"{{"tokens": [{entries}]}}"#))
    }

    async fn user_of(tokens: &StaticTokens, token: &str) -> Option<Arc<User>> {
        match tokens.authenticate(Method::GetSandbox, Credential::Bearer(token)).await {
            Verdict::Accepted(Principal::User(user), _) => Some(user),
            _ => None,
        }
    }

    #[tokio::test]
    async fn each_token_stands_for_its_user() {
        let tokens = parse(
            r#"{"token": "0123456789abcdef", "subject": "root", "roles": ["openshell-admin"]},
               {"token": "fedcba9876543210", "subject": "bob", "provider": "mtls", "issuer": "ca",
                "display_name": "Bob", "roles": ["openshell-user"], "scopes": ["sandbox:read"]}"#,
        )
        .unwrap();
        let root = user_of(&tokens, "0123456789abcdef").await.unwrap();
        assert_eq!((root.subject.as_str(), root.platform_admin, root.provider.as_str()), ("root", true, "oidc"));
        let bob = user_of(&tokens, "fedcba9876543210").await.unwrap();
        assert!(!bob.platform_admin);
        assert_eq!((bob.issuer.as_str(), bob.scopes.as_slice()), ("ca", &["sandbox:read".to_owned()][..]));
        assert!(user_of(&tokens, "0123456789abcdeF").await.is_none());
        assert!(matches!(tokens.authenticate(Method::GetSandbox, Credential::Nothing).await, Verdict::OtherKind));
    }

    #[test]
    fn entries_that_would_be_unsafe_are_refused() {
        for (entries, fault) in [
            (r#"{"token": "short", "subject": "a"}"#, "at least 16"),
            (r#"{"token": "0123456789 abcdef", "subject": "a"}"#, "at least 16"),
            (r#"{"token": "0123456789abcdef", "subject": ""}"#, "subject is empty"),
            (r#"{"token": "0123456789abcdef", "subject": "a", "provider": "saml"}"#, "provider must be"),
            (r#"{"token": "0123456789abcdef", "subject": "a", "scopes": []}"#, "empty list of scopes"),
            (r#"{"token": "0123456789abcdef", "subject": "a", "expires": "soon"}"#, "expires must be"),
            (
                r#"{"token": "0123456789abcdef", "subject": "a"}, {"token": "0123456789abcdef", "subject": "b"}"#,
                "there twice",
            ),
            (
                r#"{"token": "0123456789abcdef", "subject": "a"},
                   {"token": "0123456789abcdeg", "subject": "a", "issuer": "x"}"#,
                "another provider or issuer",
            ),
        ] {
            let error = parse(entries).unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn a_token_is_good_until_it_expires() {
        let tokens =
            parse(r#"{"token": "0123456789abcdef", "subject": "a", "expires": "1970-01-01T00:01:40Z"}"#).unwrap();
        let at = |seconds| tokens.verdict("0123456789abcdef", UNIX_EPOCH + Duration::from_secs(seconds));
        let Verdict::Accepted(_, until) = at(99) else { panic!("not yet") };
        assert_eq!(until, Some(UNIX_EPOCH + Duration::from_secs(100)));
        assert!(matches!(at(100), Verdict::Refused(_)));
    }

    #[test]
    fn an_error_never_shows_a_token() {
        for text in [r#"{"tokens": ["hush-hush-hush-hush"]}"#, r#"{"tokens": [{"hush-hush-hush-hush": 1}]}"#] {
            let error = StaticTokens::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), r#"{"tokens": []}"#).unwrap();
        for (mode, accepted) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(StaticTokens::load(file.path()).is_ok(), accepted, "{mode:o}");
        }
    }
}
