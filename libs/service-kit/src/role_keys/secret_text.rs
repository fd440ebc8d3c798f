//! A secret string in a key file.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

pub(crate) mod optional {
    use super::*;

    #[allow(clippy::ref_option, reason = "the signature that serde calls")]
    pub(crate) fn serialize<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
        match secret {
            Some(secret) => super::serialize(secret, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
    }
}

pub(crate) mod by_name {
    use std::collections::BTreeMap;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        secrets: &BTreeMap<String, SecretString>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(secrets.iter().map(|(name, secret)| (name, secret.expose_secret())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, SecretString>, D::Error> {
        let secrets = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(secrets.into_iter().map(|(name, secret)| (name, secret.into())).collect())
    }
}
