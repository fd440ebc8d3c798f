//! The id of an update as the supervisor sees it: unique among all sessions, and it holds the ordinal.

use uuid::Uuid;

/// The id of the update with this ordinal in this session.
#[must_use]
pub fn write(session_id: Uuid, ordinal: u64) -> String {
    format!("{session_id}/{ordinal}")
}

/// The ordinal in an id that [`write`] made for this session.
#[must_use]
pub fn read(session_id: Uuid, id: &str) -> Option<u64> {
    let ordinal = id.strip_prefix(&session_id.to_string())?.strip_prefix('/')?.parse().ok()?;
    (write(session_id, ordinal) == id).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_gives_its_ordinal_back(session in any::<u128>(), ordinal in any::<u64>()) {
            let session = Uuid::from_u128(session);
            prop_assert_eq!(read(session, &write(session, ordinal)), Some(ordinal));
        }

        #[test]
        fn an_id_of_another_session_is_refused(ours in any::<u128>(), theirs in any::<u128>(), ordinal in any::<u64>()) {
            prop_assume!(ours != theirs);
            prop_assert_eq!(read(Uuid::from_u128(ours), &write(Uuid::from_u128(theirs), ordinal)), None);
        }

        #[test]
        fn other_text_is_refused(session in any::<u128>(), text in ".*") {
            let session = Uuid::from_u128(session);
            prop_assert_eq!(read(session, &text), None);
            prop_assert_eq!(read(session, &format!("{session}/+{text}")), None);
            prop_assert_eq!(read(session, &format!("{session}/0{text}")), (text.is_empty()).then_some(0));
        }
    }
}
