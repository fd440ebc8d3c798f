//! Ids as text.

use uuid::Uuid;

/// A UUID in its canonical form: hyphenated and lower case. None of any other text.
#[must_use]
pub fn canonical(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|id| id.hyphenated().to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_canonical() {
        let id = Uuid::from_u128(0xABCD);
        assert_eq!(canonical(&id.to_string()), Some(id));
        for other in [String::new(), "x".into(), id.simple().to_string(), id.to_string().to_uppercase()] {
            assert_eq!(canonical(&other), None, "{other}");
        }
    }
}
