//! Cursors of log lines and platform events: where a watch resumes (D8). Opaque to clients.
//!
//! A cursor names a message by its place and time in one life of the stream. It is not a secret and opens nothing:
//! whoever resumes looks the message up and compares. The check binds it to its sandbox and finds what is broken.
//! Within one life of the stream, texts of one sandbox are ordered as the messages are.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

const VERSION: u8 = 1;
const CHECK: usize = 8;
const BYTES: usize = 1 + 3 * 8 + CHECK;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A life of the stream: another one begins when the stream is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// The life that began at this time, as the broker writes it.
    #[must_use]
    pub fn created(time: &str) -> Self {
        let hash = Sha256::digest(time);
        Self(hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// A place in the activity of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    pub incarnation: Incarnation,
    /// The message's sequence in the stream.
    pub sequence: u64,
    /// When the broker stored it, in nanoseconds since 1970.
    pub stored_nanos: i64,
}

/// The text is no cursor of this sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this sandbox")]
pub struct InvalidCursor;

impl Cursor {
    /// The cursor's text: letters and digits.
    #[must_use]
    pub fn encode(&self, sandbox_id: Uuid) -> String {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend(self.incarnation.0.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.stored_nanos.to_be_bytes());
        let check = check(sandbox_id, &bytes);
        bytes.extend(check);
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect()
    }

    /// Reads the text of a cursor of that sandbox.
    ///
    /// # Errors
    ///
    /// If it is broken, or another sandbox's.
    pub fn decode(sandbox_id: Uuid, text: &str) -> Result<Self, InvalidCursor> {
        let bytes = from_hex(text).ok_or(InvalidCursor)?;
        let (body, found) = bytes.split_at(BYTES - CHECK);
        if body[0] != VERSION || found != check(sandbox_id, body) {
            return Err(InvalidCursor);
        }
        let number = |at: usize| body[at..at + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Ok(Self { incarnation: Incarnation(number(1)), sequence: number(9), stored_nanos: number(17).cast_signed() })
    }
}

fn check(sandbox_id: Uuid, body: &[u8]) -> [u8; CHECK] {
    let hash = Sha256::new().chain_update(b"roadstead cursor").chain_update(sandbox_id).chain_update(body).finalize();
    let mut check = [0; CHECK];
    check.copy_from_slice(&hash[..CHECK]);
    check
}

fn from_hex(text: &str) -> Option<[u8; BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * BYTES {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_cursor() -> impl Strategy<Value = Cursor> {
        (any::<u64>(), any::<u64>(), any::<i64>()).prop_map(|(incarnation, sequence, stored_nanos)| Cursor {
            incarnation: Incarnation(incarnation),
            sequence,
            stored_nanos,
        })
    }

    proptest! {
        #[test]
        fn a_cursor_survives_a_round_trip_and_is_plain_text(cursor in any_cursor(), id in any::<u128>()) {
            let id = Uuid::from_u128(id);
            let text = cursor.encode(id);
            prop_assert!(text.bytes().all(|letter| letter.is_ascii_alphanumeric()), "{}", text);
            prop_assert_eq!(Cursor::decode(id, &text), Ok(cursor));
        }

        #[test]
        fn a_cursor_of_another_sandbox_is_refused(cursor in any_cursor(), one in any::<u128>(), other in any::<u128>()) {
            prop_assume!(one != other);
            let text = cursor.encode(Uuid::from_u128(one));
            prop_assert_eq!(Cursor::decode(Uuid::from_u128(other), &text), Err(InvalidCursor));
        }

        #[test]
        fn texts_of_one_life_are_ordered_as_the_messages(a in any_cursor(), b in any_cursor(), id in any::<u128>()) {
            let (b, id) = (Cursor { incarnation: a.incarnation, ..b }, Uuid::from_u128(id));
            prop_assume!(a.sequence != b.sequence);
            prop_assert_eq!(a.encode(id).cmp(&b.encode(id)), a.sequence.cmp(&b.sequence));
        }

        #[test]
        fn a_broken_cursor_is_refused(cursor in any_cursor(), at in any::<prop::sample::Index>(), letter in "[0-9a-f]") {
            let text = cursor.encode(Uuid::nil());
            let at = at.index(text.len());
            let broken = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
            prop_assume!(broken != text);
            prop_assert_eq!(Cursor::decode(Uuid::nil(), &broken), Err(InvalidCursor));
            prop_assert_eq!(Cursor::decode(Uuid::nil(), &text[..at]), Err(InvalidCursor));
            prop_assert_eq!(Cursor::decode(Uuid::nil(), &text.to_uppercase()).is_ok(), text == text.to_uppercase());
        }

        #[test]
        fn other_text_is_refused(text in ".*") {
            prop_assert_eq!(Cursor::decode(Uuid::nil(), &text), Err(InvalidCursor));
        }
    }

    #[test]
    fn lives_that_began_at_other_times_differ() {
        let life = |created| Incarnation::created(created);
        assert_eq!(life("2026-11-30T20:00:00Z"), life("2026-11-30T20:00:00Z"));
        assert_ne!(life("2026-11-30T20:00:00Z"), life("2026-11-30T20:00:00.1Z"));
    }
}
