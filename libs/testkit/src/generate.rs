//! What tests make up: names nobody else has, and for property tests anything that the API takes.

use proptest::{collection::btree_map, prelude::*};

/// A name that no other test has, as the API wants names: at most 19 bytes of a DNS label. `prefix` is at most eight
/// letters.
///
/// # Panics
/// `prefix` is too long.
#[must_use]
pub fn unique(prefix: &str) -> String {
    assert!(prefix.len() <= 8, "{prefix:?} is too long");
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}-{}", &id[..10])
}

/// Any name that a workspace or sandbox may have.
pub fn name() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9]|-[a-z0-9]){0,9}".prop_filter("at most 19 bytes", |name| name.len() <= 19)
}

/// Any text that is no name, close to one and far from one.
pub fn no_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9]{20,30}",
        "-[a-z0-9]{1,5}",
        "[a-z0-9]{1,5}-",
        "[a-z]{1,4}--[a-z]{1,4}",
        "[a-z]{1,5}[A-Z._/ *>$\u{e4}][a-z]{1,5}",
    ]
}

/// Any set of labels, as many as `most`.
pub fn labels(most: usize) -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    let key = "([a-z]{1,8}(\\.[a-z]{1,8}){0,2}/)?[a-zA-Z0-9]([a-zA-Z0-9._-]{0,20}[a-zA-Z0-9])?";
    let value = "([a-zA-Z0-9]([a-zA-Z0-9._-]{0,20}[a-zA-Z0-9])?)?";
    btree_map(key, value, 0..=most)
}

/// Any id of a request that counts, in any case.
pub fn request_id() -> impl Strategy<Value = String> {
    (any::<u128>().prop_filter("not nil", |id| *id != 0), any::<bool>()).prop_map(|(id, upper)| {
        let text = uuid::Uuid::from_u128(id).hyphenated().to_string();
        if upper { text.to_uppercase() } else { text }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_name(text: &str) -> bool {
        let characters = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let ends = !text.starts_with('-') && !text.ends_with('-') && !text.contains("--");
        (1..=19).contains(&text.len()) && characters && ends
    }

    #[test]
    fn unique_names_are_names_and_differ() {
        let (one, other) = (unique("sandbox"), unique("sandbox"));
        assert!(is_name(&one), "{one}");
        assert_ne!(one, other);
    }

    proptest! {
        #[test]
        fn names_are_names(text in name()) {
            prop_assert!(is_name(&text), "{}", text);
        }

        #[test]
        fn what_is_no_name_is_none(text in no_name()) {
            prop_assert!(!is_name(&text), "{}", text);
        }
    }
}
