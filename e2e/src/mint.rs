//! Tokens of sandboxes with times of a test's choice, signed with the deployment's own key. A machine that was away for
//! hours need not be waited for.

use std::time::{Duration, SystemTime};

use roadstead_proto::role::Role;
use roadstead_service_kit::{role_keys::RoleKeys, sandbox_token::TokenSigner};
use roadstead_testkit::Stack;
use secrecy::ExposeSecret as _;

/// The generation of a sandbox that was never started anew.
const FIRST_RUN: u64 = 1;

/// Signs as admission does.
#[derive(Debug)]
pub struct Mint(TokenSigner);

impl Mint {
    /// With a stack's keys.
    #[must_use]
    pub fn of(stack: &Stack) -> Self {
        Self(RoleKeys::load(&stack.keys_of("admission"), Role::Admission).unwrap().token_signer().unwrap())
    }

    /// A token for the first run of a sandbox, valid for `lifetime` from `issued`.
    #[must_use]
    pub fn token(&self, sandbox_id: &str, issued: SystemTime, lifetime: Duration) -> String {
        let minted = self.0.mint(sandbox_id.parse().unwrap(), FIRST_RUN, issued, lifetime);
        minted.token.expose_secret().to_owned()
    }
}
