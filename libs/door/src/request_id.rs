//! The header `x-request-id`: taken from the client or given, and repeated in the response.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header's name.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 128;

/// The client's id if it has one that is fit for a log line, else a new one.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    let fit = |value: &&HeaderValue| {
        (1..=LONGEST).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    headers.get(HEADER).filter(fit).cloned().unwrap_or_else(fresh)
}

fn fresh() -> HeaderValue {
    HeaderValue::try_from(Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str) -> HeaderValue {
        of(&HeaderMap::from_iter([(HEADER, HeaderValue::from_str(value).unwrap())]))
    }

    #[test]
    fn a_fit_id_is_kept_and_any_other_is_replaced() {
        assert_eq!(given("abc-1"), "abc-1");
        for unfit in ["", "two words", &"x".repeat(129)] {
            let id = given(unfit);
            assert!(Uuid::try_parse(id.to_str().unwrap()).is_ok(), "{id:?}");
        }
        assert!(Uuid::try_parse(of(&HeaderMap::new()).to_str().unwrap()).is_ok());
    }
}
