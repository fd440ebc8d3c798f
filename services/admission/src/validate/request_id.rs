//! The request id of a mutation (behaviour 2.2).

use uuid::Uuid;

use crate::refusal::Refusal;

/// The canonical id; none if the client gave none.
///
/// # Errors
/// `Invalid` on `request_id` unless it is empty or a hyphenated UUID of 36 characters that is not nil.
pub fn canonical(text: &str) -> Result<Option<Uuid>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    match Uuid::try_parse(text) {
        // Of the spellings that the parser takes, only the hyphenated one has 36 characters.
        Ok(id) if text.len() == 36 && !id.is_nil() => Ok(Some(id)),
        _ => Err(Refusal::invalid("request_id", "must be a hyphenated UUID that is not nil")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_does_not_matter() {
        let lower = "0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f";
        let id = canonical(lower).unwrap().unwrap();
        assert_eq!(canonical(&lower.to_uppercase()), Ok(Some(id)));
        assert_eq!(canonical(""), Ok(None));
    }

    #[test]
    fn other_spellings_are_refused() {
        for bad in [
            "00000000-0000-0000-0000-000000000000",
            "0190a5c07a2b7c3d8e4f5a6b7c8d9e0f",
            "{0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f}",
            "urn:uuid:0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f",
            "0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0",
            "0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0ff",
            " 190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f",
            "0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0g",
        ] {
            assert!(canonical(bad).is_err(), "{bad}");
        }
    }
}
