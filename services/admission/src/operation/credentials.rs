//! Credentials and configuration of a provider as a request changes them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use prost_types::Timestamp;
use roadstead_store::row::{self, Pairs};
use uuid::Uuid;

use crate::context::Vault;
use crate::refusal::Refusal;
use crate::validate::provider;

/// Last second of the year 9999.
const LAST_SECOND: i64 = 253_402_300_799;

/// Sets a value per key, or takes the key away where the value is empty. Keys that are not named stay.
pub(crate) fn merge_config(config: &mut Pairs, changes: &Pairs) {
    for (key, value) in changes {
        if value.is_empty() {
            config.remove(key);
        } else {
            config.insert(key.clone(), value.clone());
        }
    }
}

/// As [`merge_config`], with the values sealed. A new value keeps the expiry of the one before it.
pub(crate) fn merge(credentials: &mut Vec<row::Credential>, changes: &Pairs, provider_id: Uuid, vault: &dyn Vault) {
    for (key, value) in changes {
        let place = credentials.binary_search_by(|known| known.key.cmp(key));
        match (place, value.is_empty()) {
            (Ok(at), true) => _ = credentials.remove(at),
            (Ok(at), false) => {
                if let Some(known) = credentials.get_mut(at) {
                    known.sealed_value = vault.seal(provider_id, value);
                }
            }
            (Err(_), true) => {}
            (Err(at), false) => {
                let sealed_value = vault.seal(provider_id, value);
                credentials.insert(at, row::Credential { key: key.clone(), sealed_value, expires_at: None });
            }
        }
    }
}

/// Sets expiries of credentials that are there.
///
/// # Errors
/// `Invalid` if a key has no credential or its time is none.
pub(crate) fn expire(
    credentials: &mut [row::Credential],
    expirations: &BTreeMap<String, Timestamp>,
    field: &str,
) -> Result<(), Refusal> {
    for (key, time) in expirations {
        let known = credentials.iter_mut().find(|known| known.key == *key);
        let known = known.ok_or_else(|| Refusal::invalid(field, "names a key that has no credential"))?;
        known.expires_at = Some(point(*time).ok_or_else(|| Refusal::invalid(field, "not a time after 1970"))?);
    }
    Ok(())
}

/// A point in time from 1970 to the year 9999.
fn point(time: Timestamp) -> Option<SystemTime> {
    let in_range = (0..=LAST_SECOND).contains(&time.seconds) && (0..1_000_000_000).contains(&time.nanos);
    if in_range { SystemTime::try_from(time).ok() } else { None }
}

/// Refuses a provider that is over the budget of its own values.
///
/// # Errors
/// `Invalid` with the limit.
pub(crate) fn fits(row: &row::Provider, vault: &dyn Vault) -> Result<(), Refusal> {
    let sizes = row.credentials.iter().map(|known| (known.key.as_str(), vault.length(&known.sealed_value)));
    provider::whole(sizes, &row.config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, PaperVault};

    fn pairs(entries: &[(&str, &str)]) -> Pairs {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn absent_keys_stay_empty_values_delete_and_others_set() {
        let mut row = sample::provider("p", &["A", "B", "C"]);
        merge(&mut row.credentials, &pairs(&[("A", "new"), ("B", ""), ("D", "x"), ("E", "")]), row.id, &PaperVault);
        let keys = row.credentials.iter().map(|known| known.key.as_str()).collect::<Vec<_>>();
        assert_eq!(keys, ["A", "C", "D"]);
        assert_ne!(row.credentials[0].sealed_value, row.credentials[1].sealed_value);

        let mut config = pairs(&[("a", "1"), ("b", "2")]);
        merge_config(&mut config, &pairs(&[("a", ""), ("c", "3")]));
        assert_eq!(config, pairs(&[("b", "2"), ("c", "3")]));
    }

    #[test]
    fn only_a_credential_that_is_there_expires() {
        let mut row = sample::provider("p", &["A"]);
        let at = |key: &str, seconds| [(key.to_owned(), Timestamp { seconds, nanos: 0 })].into();
        assert!(expire(&mut row.credentials, &at("A", 5), "f").is_ok());
        assert!(row.credentials[0].expires_at.is_some());
        assert!(expire(&mut row.credentials, &at("B", 5), "f").is_err());
        assert!(expire(&mut row.credentials, &at("A", i64::MAX), "f").is_err());
    }
}
