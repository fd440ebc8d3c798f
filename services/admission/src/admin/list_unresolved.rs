//! Commands that were started and have no outcome, page by page.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::internal::{ListUnresolvedRequest, ListUnresolvedResponse};
use roadstead_store::operator::Unresolved;
use uuid::Uuid;

use crate::executor::Parts;
use crate::refusal::Refusal;

const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

pub(super) async fn answer(parts: &Parts, request: Bytes) -> Result<Bytes, Refusal> {
    let ListUnresolvedRequest { page_size, page_token } = super::read(request)?;
    let size = if page_size == 0 { PAGE } else { page_size.min(LARGEST_PAGE) };
    let after = if page_token.is_empty() { (SystemTime::UNIX_EPOCH, Uuid::nil()) } else { position(&page_token)? };
    let now = parts.database.now().await.map_err(|error| super::unread(&error))?;
    let rows = parts.database.unresolved(after, size).await.map_err(|error| super::unread(&error))?;
    let full = u32::try_from(rows.len()).is_ok_and(|count| count >= size);
    let next_page_token = rows.last().filter(|_| full).map(token).unwrap_or_default();
    let commands = rows.into_iter().map(super::unresolved).collect();
    let response = ListUnresolvedResponse { commands, next_page_token, read_time: Some(Timestamp::from(now)) };
    Ok(response.encode_to_vec().into())
}

/// Where a page ends: the microsecond of its last start, and the id.
fn token(last: &Unresolved) -> String {
    let micros = last.since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    format!("{micros}.{}", last.command_id)
}

fn position(token: &str) -> Result<(SystemTime, Uuid), Refusal> {
    let parsed = token.split_once('.').and_then(|(micros, id)| {
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros.parse().ok()?))?;
        Some((since, Uuid::try_parse(id).ok()?))
    });
    parsed.ok_or_else(|| Refusal::invalid("page_token", "is not one of this call"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_says_where_the_page_ended() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let last = Unresolved {
            command_id: Uuid::from_u128(7),
            method: "x".into(),
            caller: Vec::new(),
            claimed: false,
            scope: String::new(),
            request_id: None,
            since,
            until: since,
        };
        assert_eq!(position(&token(&last)), Ok((since, last.command_id)));
        for bad in ["1", "x.y", "-1.00000000-0000-0000-0000-000000000007", "1.x"] {
            assert!(position(bad).is_err(), "{bad}");
        }
    }
}
