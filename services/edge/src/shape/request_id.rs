//! The id that makes a mutation safe to repeat.

use roadstead_service_kit::status::Status;

/// Accepts the empty string (no id) or a hyphenated UUID that is not nil, in any case.
pub(super) fn check(id: &str) -> Result<(), tonic::Status> {
    if id.is_empty() {
        return Ok(());
    }
    let hyphenated = id.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    if id.len() != 36 || !hyphenated || id.bytes().all(|byte| matches!(byte, b'0' | b'-')) {
        return Err(Status::invalid("request_id", "must be a hyphenated UUID that is not nil").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyphenated_uuid_or_nothing_is_accepted() {
        for id in ["", "67e55044-10b1-426f-9247-bb680e5fe0c8", "67E55044-10B1-426F-9247-BB680E5FE0C8"] {
            assert!(check(id).is_ok(), "{id}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for id in [
            "00000000-0000-0000-0000-000000000000",
            "67e5504410b1426f9247bb680e5fe0c8",
            "67e55044-10b1-426f-9247-bb680e5fe0c",
            "67e55044-10b1-426f-9247-bb680e5fe0c8 ",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e55044010b1-426f-9247-bb680e5fe0c8",
            "é7e55044-10b1-426f-9247-bb680e5fe0c8",
        ] {
            assert!(check(id).is_err(), "{id}");
        }
    }
}
