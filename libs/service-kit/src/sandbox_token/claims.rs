//! What a sandbox token claims, and whether that holds at a given time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{SandboxIdentity, TokenError};

const SUBJECT_PREFIX: &str = "spiffe://openshell/sandbox/";
/// The last second that is still taken for a time, in the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// The claims; unknown ones are ignored, so that later versions can add some.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claims {
    iss: String,
    aud: String,
    sub: String,
    sandbox_id: String,
    generation: u64,
    auth_epoch: u64,
    iat: u64,
    exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<u64>,
}

impl Claims {
    pub(super) fn new(issuer: &str, sandbox_id: Uuid, generation: u64, now: SystemTime, lifetime: Duration) -> Self {
        let issued_at = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            iss: issuer.to_owned(),
            aud: issuer.to_owned(),
            sub: format!("{SUBJECT_PREFIX}{sandbox_id}"),
            sandbox_id: sandbox_id.to_string(),
            generation,
            auth_epoch: generation,
            iat: issued_at,
            exp: issued_at.saturating_add(lifetime.as_secs()).min(LAST_SECOND),
            nbf: None,
        }
    }

    pub(super) fn expires_at(&self) -> SystemTime {
        at(self.exp)
    }

    /// Who this is, if issuer, audience and times are right.
    pub(super) fn check(
        &self,
        issuer: &str,
        now: SystemTime,
        leeway: Duration,
        grace: Duration,
    ) -> Result<SandboxIdentity, TokenError> {
        if self.iss != issuer || self.aud != issuer {
            return Err(TokenError::Foreign);
        }
        let id = self.sub.strip_prefix(SUBJECT_PREFIX).ok_or(TokenError::Claims)?;
        let sandbox_id = Uuid::try_parse(id).map_err(|_| TokenError::Claims)?;
        let ids_agree = self.sandbox_id == id && sandbox_id.to_string() == id && !sandbox_id.is_nil();
        let times_are_times = self.iat < self.exp && self.exp <= LAST_SECOND;
        if !ids_agree || !times_are_times || self.auth_epoch != self.generation {
            return Err(TokenError::Claims);
        }
        if at(self.iat.max(self.nbf.unwrap_or(0)).min(LAST_SECOND)) > now + leeway {
            return Err(TokenError::NotYetValid);
        }
        if now > self.expires_at() + grace {
            return Err(TokenError::Expired);
        }
        Ok(SandboxIdentity { sandbox_id, generation: self.generation, expires_at: self.expires_at() })
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}
