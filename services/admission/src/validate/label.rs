//! Labels and annotations.

use roadstead_store::row::Pairs;

use super::{Checked, at_most, count_at_most};
use crate::refusal::Refusal;

const LABELS: usize = 128;
const KEY_BYTES: usize = 253;
const SEGMENT_BYTES: usize = 63;
const ANNOTATIONS: usize = 128;
const ANNOTATION_KEY_BYTES: usize = 256;
const ANNOTATION_VALUE_BYTES: usize = 8192;
/// All labels or annotations of one object together.
const TOTAL_BYTES: usize = 256 * 1024;
/// Keys that only the control plane writes.
const RESERVED_PREFIX: &str = "internal.openshell.ai/";

/// Labels: an optional DNS prefix, a short segment, a short value.
///
/// # Errors
/// `Invalid` on the field `labels`.
pub fn labels(labels: &Pairs) -> Checked {
    count_at_most("labels", labels.len(), LABELS)?;
    for (key, value) in labels {
        check_key("labels", key, KEY_BYTES)?;
        if !value.is_empty() && !is_segment(value) {
            return Err(Refusal::invalid("labels", "a value is at most 63 letters, digits or -_. between two of them"));
        }
    }
    Ok(())
}

/// Annotations: keys like those of labels, values long.
///
/// # Errors
/// `Invalid` on the field `annotations`.
pub fn annotations(annotations: &Pairs) -> Checked {
    count_at_most("annotations", annotations.len(), ANNOTATIONS)?;
    for (key, value) in annotations {
        check_key("annotations", key, ANNOTATION_KEY_BYTES)?;
        at_most("annotations", value, ANNOTATION_VALUE_BYTES)?;
    }
    let total = annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if total > TOTAL_BYTES {
        return Err(Refusal::invalid("annotations", format!("more than {TOTAL_BYTES} bytes together")));
    }
    Ok(())
}

fn check_key(field: &str, key: &str, limit: usize) -> Checked {
    if key.starts_with(RESERVED_PREFIX) {
        return Err(Refusal::invalid(field, format!("keys under {RESERVED_PREFIX} are reserved")));
    }
    let (prefix, segment) = match key.split_once('/') {
        Some((prefix, segment)) => (Some(prefix), segment),
        None => (None, key),
    };
    if key.len() > limit || !is_segment(segment) || !prefix.is_none_or(is_subdomain) {
        let rule =
            "a key is an optional DNS prefix and `/`, then at most 63 letters, digits or -_. between two of them";
        return Err(Refusal::invalid(field, rule));
    }
    Ok(())
}

fn is_segment(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    (1..=SEGMENT_BYTES).contains(&bytes.len())
        && end(bytes.first())
        && end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=SEGMENT_BYTES).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Pairs {
        [(key.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn well_formed_labels_pass() {
        for (key, value) in [("a", ""), ("team", "red-1"), ("example.com/a_b", "x.y"), ("A1", "v")] {
            assert!(labels(&one(key, value)).is_ok(), "{key}={value}");
        }
    }

    #[test]
    fn ill_formed_labels_are_refused() {
        let long = "x".repeat(64);
        for (key, value) in [
            ("", "v"),
            ("/a", "v"),
            ("a/", "v"),
            ("-a", "v"),
            ("Ex.com/a", "v"),
            ("a/b/c", "v"),
            ("a", "-"),
            ("a", "a b"),
            (&long, "v"),
            ("a", &long),
        ] {
            assert!(labels(&one(key, value)).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn keys_of_the_control_plane_are_refused() {
        let reserved = one("internal.openshell.ai/auth-epoch", "1");
        assert!(labels(&reserved).is_err());
        assert!(annotations(&reserved).is_err());
    }

    #[test]
    fn annotations_are_counted_and_measured() {
        assert!(annotations(&one("note", &"x".repeat(8192))).is_ok());
        assert!(annotations(&one("note", &"x".repeat(8193))).is_err());
        let many = (0..129).map(|at| (format!("k{at}"), String::new())).collect();
        assert!(annotations(&many).is_err());
        let large = (0..40).map(|at| (format!("k{at}"), "x".repeat(8000))).collect();
        assert!(annotations(&large).is_err());
    }
}
