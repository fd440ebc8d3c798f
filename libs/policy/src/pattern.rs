//! Whether two host or path patterns can match the same text. Where a pattern has several wildcards of one level the
//! answer errs towards "yes".

/// A host pattern, taken apart once. `*` stands for a run inside a label, `**` for any labels. No host (the endpoint
/// lists addresses only) overlaps nothing but itself.
#[derive(Debug)]
pub(crate) struct Host {
    labels: Vec<String>,
    has_wildcard: bool,
}

impl Host {
    pub(crate) fn new(pattern: &str) -> Self {
        let labels = pattern.to_ascii_lowercase().split('.').map(str::to_owned).collect();
        Self { labels, has_wildcard: pattern.contains('*') }
    }

    /// Whether both patterns can match one host.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        if !self.has_wildcard && !other.has_wildcard {
            return self.labels == other.labels;
        }
        overlap(&self.labels, &other.labels, |label| label == "**", |a, b| piece_overlaps(a, b))
    }
}

/// Whether two path patterns can match one path. No path stands for every path.
pub(crate) fn paths_overlap(left: &str, right: &str) -> bool {
    if left.is_empty() || right.is_empty() || left == right {
        return true;
    }
    if !left.contains('*') && !right.contains('*') {
        return false;
    }
    let (left, right) = (left.split('/').collect::<Vec<_>>(), right.split('/').collect::<Vec<_>>());
    overlap(&left, &right, |piece| *piece == "**", |a, b| piece_overlaps(a, b))
}

fn piece_overlaps(left: &str, right: &str) -> bool {
    overlap(left.as_bytes(), right.as_bytes(), |byte| *byte == b'*', |a, b| a == b)
}

/// Whether two sequences with wildcards can stand for one sequence: what lies before the first and after the last
/// wildcard decides.
fn overlap<T>(left: &[T], right: &[T], is_wildcard: impl Fn(&T) -> bool, same: impl Fn(&T, &T) -> bool) -> bool {
    let ends = |items: &[T]| {
        let first = items.iter().position(&is_wildcard)?;
        let last = items.iter().rposition(&is_wildcard)?;
        Some((first, items.len() - last - 1))
    };
    let (head, tail) = match (ends(left), ends(right)) {
        (None, None) if left.len() != right.len() => return false,
        (None, None) => (left.len(), 0),
        (Some((head, tail)), None) if right.len() < head + tail => return false,
        (None, Some((head, tail))) if left.len() < head + tail => return false,
        (Some(ends), None) | (None, Some(ends)) => ends,
        (Some((a, b)), Some((c, d))) => (a.min(c), b.min(d)),
    };
    let heads = left.iter().zip(right).take(head);
    let tails = left.iter().rev().zip(right.iter().rev()).take(tail);
    tails.chain(heads).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts_overlap(left: &str, right: &str) -> bool {
        Host::new(left).overlaps(&Host::new(right))
    }

    #[test]
    fn hosts_overlap_where_one_name_fits_both() {
        for (left, right, expected) in [
            ("api.example.com", "API.example.com", true),
            ("api.example.com", "www.example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("**.example.com", "a.b.example.com", true),
            ("**.example.com", "*.example.org", false),
            ("api-*.example.com", "*-eu.example.com", true),
            ("api-*.example.com", "www-*.example.com", false),
            ("a*b.example.com", "ab.example.com", true),
            ("ab*ba.example.com", "aba.example.com", false),
            ("", "api.example.com", false),
            ("", "", true),
        ] {
            assert_eq!(hosts_overlap(left, right), expected, "{left} {right}");
            assert_eq!(hosts_overlap(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn paths_overlap_where_one_request_fits_both() {
        for (left, right, expected) in [
            ("", "/v1", true),
            ("/**", "/v1/models", true),
            ("/v1/**", "/v2/models", false),
            ("/v1/*", "/v1/models", true),
            ("/v1/*", "/v1/models/x", false),
            ("/graphql", "/v1/**", false),
        ] {
            assert_eq!(paths_overlap(left, right), expected, "{left} {right}");
            assert_eq!(paths_overlap(right, left), expected, "{right} {left}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_overlaps_every_name_made_from_it(
            labels in proptest::collection::vec("[a-b]{1,3}", 1..5),
            wild in proptest::collection::vec(any::<bool>(), 5),
        ) {
            let name = labels.join(".");
            let pattern = labels.iter().zip(&wild).map(|(label, wild)| if *wild { "*" } else { label.as_str() });
            let pattern = pattern.collect::<Vec<_>>().join(".");
            prop_assert!(hosts_overlap(&pattern, &name));
            prop_assert!(hosts_overlap(&name, &pattern));
            prop_assert!(hosts_overlap(&pattern, &pattern));
        }
    }
}
