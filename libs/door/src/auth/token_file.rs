//! A file of tokens that may change while it is used.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::static_tokens::{StaticTokens, StaticTokensError, text};

/// The file, and the tokens that it had when it was read last.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: StaticTokens,
    /// Of the text that the tokens were read from.
    digest: [u8; 32],
}

impl TokenFile {
    /// Reads the file, which only its owner may be able to read.
    ///
    /// # Errors
    ///
    /// See [`StaticTokensError`].
    pub fn load(path: PathBuf) -> Result<Self, StaticTokensError> {
        let text = text(&path)?;
        Ok(Self { tokens: StaticTokens::parse(&text)?, digest: Sha256::digest(text.as_bytes()).into(), path })
    }

    /// Its tokens: always those that were read last.
    #[must_use]
    pub fn tokens(&self) -> StaticTokens {
        self.tokens.clone()
    }

    /// Reads the file again, and says whether it has changed. It may take as long as a file system takes.
    ///
    /// # Errors
    ///
    /// See [`StaticTokensError`]; the tokens stay as they are.
    pub fn read_again(&mut self) -> Result<bool, StaticTokensError> {
        let text = text(&self.path)?;
        let digest = Sha256::digest(text.as_bytes()).into();
        if digest == self.digest {
            return Ok(false);
        }
        self.tokens.replace(&text)?;
        self.digest = digest;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use roadstead_proto::method::Method;

    use super::*;
    use crate::auth::{Authenticator as _, Credential, Verdict};

    #[tokio::test]
    async fn what_changes_in_the_file_counts_and_what_cannot_be_read_does_not() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let write = |text: &str| fs::write(&path, text).unwrap();
        write(r#"{"tokens": [{"token": "0123456789abcdef", "subject": "a"}]}"#);
        let mut file = TokenFile::load(path.to_path_buf()).unwrap();
        let tokens = file.tokens();
        let known = async || {
            let verdict = tokens.authenticate(Method::GetSandbox, Credential::Bearer("0123456789abcdef")).await;
            matches!(verdict, Verdict::Accepted(..))
        };
        assert!(!file.read_again().unwrap() && known().await);
        write(r#"{"tokens": ["#);
        assert!(file.read_again().is_err() && known().await);
        write(r#"{"tokens": []}"#);
        assert!(file.read_again().unwrap() && !known().await);
        assert!(!file.read_again().unwrap());
    }
}
