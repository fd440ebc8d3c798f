//! Receipts for whoever only looks. Looking changes nothing, so nothing is stored of it: the id of such a receipt says
//! itself what is looked at, and holds on every replica and for as long as the sandbox does.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

/// What was desired of a provider when somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedReceipt {
    pub(crate) sandbox_id: Uuid,
    pub(crate) provider_id: Uuid,
    pub(crate) provider_version: u64,
    pub(crate) attachment_epoch: Uuid,
    /// In milliseconds.
    pub(crate) at: SystemTime,
}

const PREFIX: &str = "observe";
/// End of the year 9999, behind which no timestamp of the API lies.
const LATEST_MS: u64 = 253_402_300_799_999;

impl ObservedReceipt {
    /// As a receipt's id.
    #[must_use]
    pub(crate) fn id(&self) -> String {
        let Self { sandbox_id, provider_id, provider_version, attachment_epoch, .. } = self;
        let (version, ms) = (provider_version, self.millis());
        let ids = [sandbox_id, provider_id, attachment_epoch].map(|id| id.simple().to_string());
        format!("{PREFIX}.{}.{version:x}.{ms:x}", ids.join("."))
    }

    /// What an id says; none if it is not such a receipt's.
    #[must_use]
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let [prefix, sandbox_id, provider_id, epoch, version, ms] =
            id.split('.').collect::<Vec<_>>().try_into().ok()?;
        let ms = u64::from_str_radix(ms, 16).ok().filter(|ms| *ms <= LATEST_MS)?;
        let receipt = Self {
            sandbox_id: Uuid::try_parse(sandbox_id).ok()?,
            provider_id: Uuid::try_parse(provider_id).ok()?,
            provider_version: u64::from_str_radix(version, 16).ok()?,
            attachment_epoch: Uuid::try_parse(epoch).ok()?,
            at: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))?,
        };
        // Only the one spelling that is written.
        (prefix == PREFIX && receipt.id() == id).then_some(receipt)
    }

    fn millis(&self) -> u64 {
        let since = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> ObservedReceipt {
        ObservedReceipt {
            sandbox_id: Uuid::from_u128(1),
            provider_id: Uuid::from_u128(2),
            provider_version: 300,
            attachment_epoch: Uuid::from_u128(3),
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567),
        }
    }

    #[test]
    fn an_id_says_what_it_is_a_receipt_of() {
        assert_eq!(ObservedReceipt::parse(&receipt().id()), Some(receipt()));
    }

    #[test]
    fn other_text_is_no_receipt() {
        let id = receipt().id();
        for bad in [String::new(), Uuid::from_u128(5).to_string(), id.to_uppercase(), format!("{id}.0"), id[1..].into()]
        {
            assert_eq!(ObservedReceipt::parse(&bad), None, "{bad}");
        }
        assert_eq!(ObservedReceipt::parse(&id.replace(".12c.", ".012c.")), None);
        let at = |ms| ObservedReceipt { at: SystemTime::UNIX_EPOCH + Duration::from_millis(ms), ..receipt() };
        assert_eq!(ObservedReceipt::parse(&at(LATEST_MS).id()), Some(at(LATEST_MS)));
        assert_eq!(ObservedReceipt::parse(&at(LATEST_MS + 1).id()), None, "no client can show such a time");
    }
}
