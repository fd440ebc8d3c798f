//! The deadline of a call, from the header `grpc-timeout`.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use roadstead_service_kit::clock;
use tokio::time::Instant;

/// Deadline of a unary call whose client set none.
pub const DEFAULT: Duration = Duration::from_secs(60);
/// Latest deadline that a unary call can have.
pub const LONGEST: Duration = Duration::from_secs(120);

/// A moment on both clocks: this process waits by the one, others judge by the other.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// For timers of this process.
    pub instant: Instant,
    /// For other processes.
    pub time: SystemTime,
}

impl Deadline {
    /// The moment this far from now.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self { instant: Instant::now() + duration, time: clock::now() + duration }
    }

    /// How long it is until then; zero if it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.instant.saturating_duration_since(Instant::now())
    }
}

/// A timeout that is not one of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header grpc-timeout is malformed")]
pub struct Malformed;

/// What the client allows for the call, if it says so.
///
/// # Errors
///
/// The header is there and is not 1 to 8 digits and a unit.
pub fn of(headers: &HeaderMap) -> Result<Option<Duration>, Malformed> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let value = value.to_str().map_err(|_| Malformed)?;
    let (digits, unit) = value.split_at_checked(value.len().wrapping_sub(1)).ok_or(Malformed)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Malformed);
    }
    let number: u64 = digits.parse().map_err(|_| Malformed)?;
    let duration = match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(Malformed),
    };
    Ok(Some(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Option<Duration>, Malformed> {
        of(&HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), value.parse().unwrap())]))
    }

    #[test]
    fn every_unit_is_known() {
        assert_eq!(of(&HeaderMap::new()), Ok(None));
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(read(text), Ok(Some(expected)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "1SS"] {
            assert_eq!(read(text), Err(Malformed), "{text}");
        }
    }
}
