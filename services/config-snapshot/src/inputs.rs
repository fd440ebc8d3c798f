//! Rows as composition takes them; credentials are opened on the way.

use roadstead_policy::compose::{Credential, Inputs, PolicyRevision, Provider, Settings};
use roadstead_policy::settings::POLICY_KEY;
use roadstead_proto::sealing::{CipherKeys, OpenError};
use roadstead_store::{inputs as stored, row};
use secrecy::SecretString;
use zeroize::Zeroizing;

/// The inputs of one sandbox.
///
/// # Errors
/// A credential that does not open. It fails the build: an environment without it would look like a revocation.
pub(crate) fn inputs(read: stored::Inputs, credentials: &CipherKeys) -> Result<Inputs, OpenError> {
    let stored::Inputs { sandbox, policy, global_policy, sandbox_settings, global_settings, providers, .. } = read;
    // The newest global revision stays when the global policy is deleted; the setting says whether it applies.
    let global_policy = global_policy.filter(|_| global_settings.values.contains_key(POLICY_KEY));
    Ok(Inputs {
        workspace: sandbox.workspace_name,
        attachment_epoch: sandbox.attachment_epoch.to_string(),
        configuration_instance_id: sandbox.configuration_instance_id,
        spec_policy: sandbox.spec.policy,
        sandbox_policy: policy.map(revision),
        global_policy: global_policy.map(revision),
        sandbox_settings: settings(sandbox_settings),
        global_settings: settings(global_settings),
        providers: providers
            .into_iter()
            .map(|provider| self::provider(provider, credentials))
            .collect::<Result<_, _>>()?,
    })
}

fn revision(revision: row::PolicyRevision) -> PolicyRevision {
    PolicyRevision { version: revision.version, policy: revision.policy }
}

fn settings(settings: row::Settings) -> Settings {
    Settings { revision: settings.revision, values: settings.values }
}

fn provider(provider: row::Provider, keys: &CipherKeys) -> Result<Provider, OpenError> {
    let id = provider.id;
    let credential = |credential: row::Credential| {
        let plain = Zeroizing::new(keys.decrypt(id.as_bytes(), &credential.sealed_value)?);
        let value = std::str::from_utf8(&plain).map_err(|_| OpenError::Malformed)?;
        Ok(Credential { key: credential.key, value: SecretString::from(value), expires_at: credential.expires_at })
    };
    Ok(Provider {
        id: id.to_string(),
        name: provider.name,
        kind: provider.kind,
        resource_version: provider.resource_version,
        config: provider.config,
        credentials: provider.credentials.into_iter().map(credential).collect::<Result<_, _>>()?,
    })
}
