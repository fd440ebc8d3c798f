//! Whether a stream can go on after a cursor. Pure.

use prost_types::Timestamp;
use roadstead_bus::activity::State;
use roadstead_proto::cursor::Cursor;
use uuid::Uuid;

use super::line::nanos;

/// When the line was stored that the cursor names, or why nobody can resume after it. `found` is what stands at its place
/// now: whose it is and when it was stored.
pub(super) fn after(
    cursor: &Cursor,
    sandbox_id: Uuid,
    state: &State,
    found: Option<(Uuid, Timestamp)>,
) -> Result<Timestamp, &'static str> {
    if cursor.incarnation != state.incarnation {
        return Err("the stored lines were lost since");
    }
    if cursor.sequence > state.last {
        return Err("it is ahead of what is stored");
    }
    match found {
        None => Err("what it names was trimmed"),
        Some((of, stored)) if of == sandbox_id && nanos(&stored) == cursor.stored_nanos => Ok(stored),
        Some(_) => Err("the stored lines were rolled back since"),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::cursor::Incarnation;

    use super::*;

    #[test]
    fn a_cursor_counts_where_it_names_the_same_line_of_the_same_life() {
        let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (incarnation, stored) = (Incarnation::created("a"), Timestamp { seconds: 5, nanos: 1 });
        let state = State { incarnation, first: 1, last: 9 };
        let cursor = Cursor { incarnation, sequence: 7, stored_nanos: 5_000_000_001 };
        assert_eq!(after(&cursor, mine, &state, Some((mine, stored))), Ok(stored));
        let later = Timestamp { nanos: 2, ..stored };
        for (state, found) in [
            (State { incarnation: Incarnation::created("b"), ..state }, Some((mine, stored))),
            (State { last: 6, ..state }, Some((mine, stored))),
            (state, None),
            (state, Some((other, stored))),
            (state, Some((mine, later))),
        ] {
            assert!(after(&cursor, mine, &state, found).is_err(), "{state:?} {found:?}");
        }
    }
}
