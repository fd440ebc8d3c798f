//! Names of objects.

use super::{Checked, at_most};
use crate::refusal::Refusal;

/// Longest name of a workspace or a sandbox: a host label holds three of them and two separators.
const LABEL_BYTES: usize = 19;
const PROVIDER_BYTES: usize = 253;
const PROVIDER_TYPE_BYTES: usize = 64;
const SUBJECT_BYTES: usize = 256;

/// A workspace's or sandbox's name: characters of a DNS label, 1 to 19 of them, no hyphen at the ends, no two in a row.
///
/// # Errors
/// `Invalid` with the field.
pub fn label(field: &str, name: &str) -> Checked {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let well_formed = (1..=LABEL_BYTES).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if well_formed {
        return Ok(());
    }
    let rule = "must be 1 to 19 lower-case letters, digits or single hyphens, with no hyphen at the ends";
    Err(Refusal::invalid(field, rule))
}

/// A name that only has to be there, as one names an existing object.
///
/// # Errors
/// `Invalid` with the field, if it is empty.
pub fn given(field: &str, name: &str) -> Checked {
    if name.is_empty() { Err(Refusal::invalid(field, "required")) } else { Ok(()) }
}

/// A provider's name.
///
/// # Errors
/// `Invalid` with the field.
pub fn provider(field: &str, name: &str) -> Checked {
    given(field, name)?;
    printable(field, name)?;
    at_most(field, name, PROVIDER_BYTES)
}

/// A provider's type.
///
/// # Errors
/// `Invalid` with the field.
pub fn provider_type(field: &str, name: &str) -> Checked {
    given(field, name)?;
    printable(field, name)?;
    at_most(field, name, PROVIDER_TYPE_BYTES)
}

/// The subject of a principal, as members are named.
///
/// # Errors
/// `Invalid` with the field.
pub fn subject(field: &str, subject: &str) -> Checked {
    given(field, subject)?;
    printable(field, subject)?;
    at_most(field, subject, SUBJECT_BYTES)
}

fn printable(field: &str, text: &str) -> Checked {
    if text.contains(char::is_control) {
        return Err(Refusal::invalid(field, "may not contain control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_rule() {
        for good in ["a", "a-b", "0", "abcdefghij-12345678"] {
            assert!(label("name", good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a.b", "a_b", "ä", "abcdefghij-123456789"] {
            assert!(label("name", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn providers_and_subjects_may_be_longer_but_not_without_end() {
        assert!(provider("name", &"x".repeat(253)).is_ok());
        for bad in [String::new(), "x".repeat(254), "a\nb".into(), "a\0".into()] {
            assert!(provider("name", &bad).is_err());
        }
        assert!(provider_type("type", &"x".repeat(65)).is_err());
        assert!(subject("principal_subject", "auth0|ann@example.com").is_ok());
    }
}
