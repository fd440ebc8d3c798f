//! Sizes: a static budget per part, refused at that part's own write, so that a snapshot of the most that fits the
//! parts fits a broker message.

use prost::Message as _;
use roadstead_proto::api::sandbox::{NetworkEndpoint, SandboxPolicy};
use roadstead_proto::api::v1::StaticCredentialEndpointBinding;

use crate::endpoint::ports;
use crate::refusal::{Reason, Refusal};

/// Providers attached to one sandbox.
pub const PROVIDERS: usize = 32;
/// Encoded policy, in bytes.
pub const POLICY_BYTES: usize = 256 * 1024;
/// Settings of one scope, keys and values, in bytes.
pub const SETTINGS_BYTES: usize = 64 * 1024;
/// Credentials and configuration of one provider as a snapshot carries them, in bytes; see [`provider_bytes`].
pub const PROVIDER_BYTES: usize = 56 * 1024;
/// One provider profile, in bytes.
pub const PROFILE_BYTES: usize = 24 * 1024;
/// Services that the deployment offers to policies, in bytes.
pub const MIDDLEWARE_BYTES: usize = 8 * 1024;
/// Both halves of a snapshot as one stored value, in bytes.
pub const SNAPSHOT_BYTES: usize = 3 * 1024 * 1024;
/// What storing adds to the two halves: encryption, digests, ids.
pub const ENVELOPE_BYTES: usize = 1024;
/// Endpoints of a policy that bind credentials.
///
/// Every credential carries the endpoints it may go to, so this is paid up to 32 times (once per credential of the
/// bound provider) and has its own small budget.
pub const BOUND_ENDPOINT_BYTES: usize = 4 * 1024;
/// Endpoints of one policy; comparing each with each stays cheap.
pub const ENDPOINTS: usize = 1024;

/// What a snapshot adds to the key and value of a credential: its own framing, its expiry and its identity.
const CREDENTIAL_OVERHEAD: usize = 128;
/// What a snapshot adds to the key and value of a configuration entry.
const ENTRY_OVERHEAD: usize = 16;

/// Size of one provider's own values as a snapshot carries them, from (key, value length) pairs.
#[must_use]
pub fn provider_bytes<'a>(
    credentials: impl IntoIterator<Item = (&'a str, usize)>,
    config: impl IntoIterator<Item = (&'a str, usize)>,
) -> usize {
    let cost = |overhead: usize| move |(key, value): (&str, usize)| 2 * key.len() + value + overhead;
    let credentials = credentials.into_iter().map(cost(CREDENTIAL_OVERHEAD)).sum::<usize>();
    credentials + config.into_iter().map(cost(ENTRY_OVERHEAD)).sum::<usize>()
}

/// Refuses a provider whose own values are over [`PROVIDER_BYTES`].
///
/// # Errors
/// `TooLarge` on `provider.credentials`, where most of the size comes from.
pub fn check_provider<'a>(
    credentials: impl IntoIterator<Item = (&'a str, usize)>,
    config: impl IntoIterator<Item = (&'a str, usize)>,
) -> Result<(), Refusal> {
    if provider_bytes(credentials, config) > PROVIDER_BYTES {
        return Err(Refusal::new("provider.credentials", Reason::TooLarge { limit: PROVIDER_BYTES }));
    }
    Ok(())
}

/// The places that an endpoint's credentials may be sent to, one a port.
pub(crate) fn bound_endpoints(endpoint: &NetworkEndpoint) -> impl Iterator<Item = StaticCredentialEndpointBinding> {
    let path = if endpoint.path.is_empty() { "/**" } else { &endpoint.path };
    ports(endpoint).map(move |port| StaticCredentialEndpointBinding {
        host: endpoint.host.clone(),
        port,
        path: path.to_owned(),
    })
}

/// Bytes of all bound endpoints of a policy, as one credential would carry them.
pub(crate) fn bound_endpoint_bytes(policy: &SandboxPolicy) -> usize {
    crate::canonical::endpoints(policy)
        .filter(|endpoint| endpoint.credential_binding.is_some())
        .flat_map(bound_endpoints)
        .map(|bound| framed(bound.encoded_len()))
        .sum()
}

/// Length of a message of up to 2 MiB inside another.
const fn framed(length: usize) -> usize {
    length + 4
}
