//! A line as it is stored. Pure.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::activity::LINE_BYTES;
use roadstead_proto::api::v1::SandboxLogLine;
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;

/// Source of what a sandbox says.
const SANDBOX: &str = "sandbox";
/// Source of what is said of it.
const GATEWAY: &str = "gateway";
const LEVEL_BYTES: usize = 16;
const TARGET_BYTES: usize = 256;
/// All names and values of a line.
const FIELDS_BYTES: usize = 1024;
/// What encoding adds to the parts of a line at most.
const FRAME_BYTES: usize = 64;
/// Seconds of the years 1 to 9999, which a timestamp may have.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Stands for what was cut off.
const CUT: &str = "…";

/// The line of a supervisor, cut to what is kept, with the source it has whatever it says.
#[must_use]
pub fn of_sandbox(sandbox_id: &str, line: SandboxLogLine, now: Timestamp) -> Vec<u8> {
    let sane = |time: &Timestamp| SECONDS.contains(&time.seconds) && (0..1_000_000_000).contains(&time.nanos);
    let level = if line.level.is_empty() { "INFO".to_owned() } else { cut(line.level, LEVEL_BYTES) };
    let kept = SandboxLogLine {
        sandbox_id: sandbox_id.to_owned(),
        event_time: Some(line.event_time.filter(sane).unwrap_or(now)),
        level,
        target: cut(line.target, TARGET_BYTES),
        source: SANDBOX.to_owned(),
        fields: fitting(line.fields),
        message: String::new(),
    };
    let room = LINE_BYTES.saturating_sub(kept.encoded_len() + FRAME_BYTES);
    encoded(SandboxLogLine { message: cut(line.message, room), ..kept })
}

/// The word on lines that were dropped.
#[must_use]
pub fn of_dropped(sandbox_id: &str, lines: u64, now: Timestamp) -> Vec<u8> {
    let message = format!(
        "{lines} lines were dropped here: kept are at most {} lines and {} bytes a second, {} lines of a batch, and \
         what the broker took",
        super::allowance::LINES,
        super::allowance::BYTES,
        super::allowance::BATCH
    );
    encoded(SandboxLogLine {
        sandbox_id: sandbox_id.to_owned(),
        event_time: Some(now),
        level: "WARN".to_owned(),
        target: "roadstead.bridge".to_owned(),
        source: GATEWAY.to_owned(),
        fields: BTreeMap::from([("dropped".to_owned(), lines.to_string())]),
        message,
    })
}

fn encoded(line: SandboxLogLine) -> Vec<u8> {
    ActivityLine { content: Some(Content::Log(line)) }.encode_to_vec()
}

fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text
}

/// The fields that fit, in the order of their names.
fn fitting(fields: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut room = FIELDS_BYTES;
    let mut fits = |name: &String, value: &String| {
        // Tags and lengths of an entry.
        let left = room.checked_sub(name.len() + value.len() + 12);
        room = left.unwrap_or(room);
        left.is_some()
    };
    fields.into_iter().filter(|(name, value)| fits(name, value)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_000, nanos: 5 };

    fn kept(line: SandboxLogLine) -> SandboxLogLine {
        let bytes = of_sandbox("own", line, NOW);
        assert!(bytes.len() <= LINE_BYTES, "{}", bytes.len());
        match ActivityLine::decode(bytes.as_slice()).unwrap().content {
            Some(Content::Log(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_says_its_own_sandbox_and_source_whatever_it_claims() {
        let claimed = SandboxLogLine {
            sandbox_id: "another".to_owned(),
            source: "gateway".to_owned(),
            level: "WARN".to_owned(),
            message: "m".to_owned(),
            event_time: Some(Timestamp { seconds: 7, nanos: 0 }),
            ..Default::default()
        };
        let line = kept(claimed.clone());
        assert_eq!((line.sandbox_id.as_str(), line.source.as_str()), ("own", "sandbox"));
        assert_eq!((line.level, line.message, line.event_time), (claimed.level, claimed.message, claimed.event_time));
    }

    #[test]
    fn what_is_missing_or_senseless_is_filled_in() {
        for time in [None, Some(Timestamp { seconds: i64::MAX, nanos: 0 }), Some(Timestamp { seconds: 1, nanos: -1 })] {
            let line = kept(SandboxLogLine { event_time: time, ..Default::default() });
            assert_eq!((line.event_time, line.level.as_str()), (Some(NOW), "INFO"));
        }
    }

    #[test]
    fn a_long_message_is_cut_and_shows_it() {
        let line = kept(SandboxLogLine { message: "ä".repeat(10_000), ..Default::default() });
        assert!(line.message.ends_with("ä…") && line.message.len() > LINE_BYTES - 256, "{}", line.message.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn no_line_is_too_large(
            message in ".{0,6000}", target in ".{0,400}", level in ".{0,40}",
            fields in proptest::collection::btree_map(".{0,80}", ".{0,300}", 0..20),
        ) {
            kept(SandboxLogLine { message, target, level, fields, ..Default::default() });
        }
    }
}
