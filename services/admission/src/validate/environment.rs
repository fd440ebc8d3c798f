//! Environment variables.

use roadstead_store::row::Pairs;

use super::{Checked, at_most, count_at_most};
use crate::refusal::Refusal;

const ENTRIES: usize = 128;
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 8192;
const TOTAL_BYTES: usize = 256 * 1024;
/// Variables that the platform sets itself.
const RESERVED_PREFIX: &str = "OPENSHELL_";

/// The environment of a sandbox's specification.
///
/// # Errors
/// `Invalid` with the field.
pub fn environment(field: &str, environment: &Pairs) -> Checked {
    count_at_most(field, environment.len(), ENTRIES)?;
    for (name, content) in environment {
        key(field, name)?;
        value(field, content)?;
    }
    let total = environment.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if total > TOTAL_BYTES {
        return Err(Refusal::invalid(field, format!("more than {TOTAL_BYTES} bytes together")));
    }
    Ok(())
}

/// The name of a variable: a letter or `_`, then letters, digits and `_`; not reserved.
///
/// # Errors
/// `Invalid` with the field.
pub fn key(field: &str, key: &str) -> Checked {
    let well_formed = key
        .bytes()
        .enumerate()
        .all(|(at, byte)| byte.is_ascii_alphabetic() || byte == b'_' || (at > 0 && byte.is_ascii_digit()));
    if key.is_empty() || key.len() > KEY_BYTES || !well_formed {
        let rule = format!("a key is a letter or _, then letters, digits or _, at most {KEY_BYTES} bytes");
        return Err(Refusal::invalid(field, rule));
    }
    if key.starts_with(RESERVED_PREFIX) {
        return Err(Refusal::invalid(field, format!("keys that begin with {RESERVED_PREFIX} are reserved")));
    }
    Ok(())
}

/// The value of a variable.
///
/// # Errors
/// `Invalid` with the field.
pub fn value(field: &str, value: &str) -> Checked {
    if value.contains(['\0', '\r', '\n']) {
        return Err(Refusal::invalid(field, "a value may not contain NUL, CR or LF"));
    }
    at_most(field, value, VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_look_like_variables() {
        for good in ["A", "_a", "A1_b"] {
            assert!(key("environment", good).is_ok(), "{good}");
        }
        for bad in ["", "1A", "A-B", "A B", "OPENSHELL_X", &"A".repeat(257)] {
            assert!(key("environment", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_one_line_and_bounded() {
        assert!(value("environment", &"x".repeat(8192)).is_ok());
        for bad in ["a\nb", "a\rb", "a\0b", &"x".repeat(8193)] {
            assert!(value("environment", bad).is_err());
        }
    }

    #[test]
    fn the_whole_is_bounded() {
        let many: Pairs = (0..129).map(|at| (format!("K{at}"), String::new())).collect();
        assert!(environment("environment", &many).is_err());
        let large: Pairs = (0..40).map(|at| (format!("K{at}"), "x".repeat(8000))).collect();
        assert!(environment("environment", &large).is_err());
    }
}
