//! Label selectors: `key=value` pairs, all of which must match (behaviour 1.3).

use std::collections::BTreeMap;

use crate::refusal::Refusal;

const FIELD: &str = "label_selector";
const MAX_PAIRS: usize = 64;
const MAX_BYTES: usize = 64 * (253 + 1 + 63 + 1);

/// The pairs of a selector; empty text matches everything. A trailing comma is tolerated.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, String>, Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::field(FIELD, "is too long"));
    }
    if text.contains(char::is_control) {
        return Err(Refusal::field(FIELD, "must not hold control characters"));
    }
    let mut pairs = BTreeMap::new();
    let text = text.trim();
    for part in text.strip_suffix(',').unwrap_or(text).split(',').filter(|_| !text.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| Refusal::field(FIELD, "must be pairs of the form key=value"))?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.contains(['=', '!']) || key.contains(['!', ' ']) {
            return Err(Refusal::field(FIELD, "supports equality only: key=value"));
        }
        if pairs.insert(key.to_owned(), value.to_owned()).is_some_and(|before| before != value) {
            return Err(Refusal::field(FIELD, "asks for two values of one key, which nothing can match"));
        }
    }
    if pairs.len() > MAX_PAIRS {
        return Err(Refusal::field(FIELD, "must have at most 64 pairs"));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_read_and_a_trailing_comma_is_tolerated() {
        let pairs = parse("team=a, tier=,").unwrap();
        assert_eq!(pairs, BTreeMap::from([("team".into(), "a".into()), ("tier".into(), String::new())]));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn other_operators_and_broken_pairs_are_refused() {
        for bad in ["a", "a,b=c", "=b", "a!=b", "a==b", ",", "a=b,,c=d", "a in b", "a=1,a=2", "a=\0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(pairs in proptest::collection::btree_map("[a-z]{1,9}", "[a-z0-9]{0,9}", 0..64)) {
            let text = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(&text).unwrap(), pairs);
        }
    }
}
