use std::time::Duration;

use proptest::prelude::*;
use roadstead_proto::api::v1::{ConfigApplyFailure, PolicyLoadResult, SandboxConfigurationAdmission};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn digest(content: u8) -> Digest {
    Digest::new([content; 32])
}

/// An entry whose halves are named by one byte each; the version of the configuration is its name.
fn entry(sequence: u64, config: u8, environment: u8) -> Entry {
    Entry {
        order: Order { epoch: 1, sequence },
        config_digest: digest(config),
        config: Box::new(SandboxConfigSnapshot {
            version: config.into(),
            configuration_admitted: true,
            ..SandboxConfigSnapshot::default()
        }),
        environment_digest: digest(environment),
        environment: Bytes::copy_from_slice(&[environment]),
    }
}

fn answer(outcome: ConfigApplyOutcome) -> ConfigUpdateResult {
    ConfigUpdateResult { outcome: outcome.into(), ..ConfigUpdateResult::default() }
}

fn refusal(retryable: bool) -> ConfigUpdateResult {
    ConfigUpdateResult {
        failure: Some(ConfigApplyFailure { code: "bad".into(), message: "no\nthanks".into(), retryable }),
        ..answer(ConfigApplyOutcome::FailedClosed)
    }
}

/// Names of the halves in a frame.
fn contents(frame: &Frame) -> (Option<u8>, Option<u8>) {
    (frame.config.as_ref().map(|config| config.version as u8), frame.environment.as_ref().map(|bytes| bytes[0]))
}

/// Slots that were given an entry and sent it, at that time.
fn started(now: Instant) -> Slots {
    let mut slots = Slots::default();
    assert!(slots.offer(entry(1, 1, 1), now));
    let frame = slots.take_frame(now).unwrap();
    assert_eq!((frame.ordinal, contents(&frame), frame.again), (1, (Some(1), Some(1)), false));
    slots
}

/// Slots whose first entry is installed.
fn settled(now: Instant) -> Slots {
    let mut slots = started(now);
    assert!(slots.hear(1, &answer(ConfigApplyOutcome::Applied), now).report);
    assert_eq!(slots.due(), None);
    slots
}

#[test]
fn the_first_update_has_both_halves() {
    started(Instant::now());
}

#[test]
fn equal_and_older_entries_are_dropped() {
    let now = Instant::now();
    let mut slots = settled(now);
    assert!(!slots.offer(entry(1, 9, 9), now));
    assert!(!slots.offer(Entry { order: Order { epoch: 0, sequence: 99 }, ..entry(0, 9, 9) }, now));
    assert_eq!(slots.due(), None);
    assert!(slots.offer(Entry { order: Order { epoch: 2, sequence: 0 }, ..entry(0, 9, 1) }, now));
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(9), None));
}

#[test]
fn content_that_the_supervisor_has_is_not_sent() {
    let now = Instant::now();
    let mut slots = settled(now);
    assert!(slots.offer(entry(2, 1, 1), now));
    assert_eq!(slots.due(), None);
    assert!(slots.take_frame(now + 1000 * SECOND).is_none());
}

#[test]
fn an_unanswered_frame_is_sent_again_after_a_minute_with_the_same_content() {
    let now = Instant::now();
    let mut slots = started(now);
    assert!(slots.take_frame(now + 59 * SECOND).is_none());
    let frame = slots.take_frame(now + RESEND_AFTER).unwrap();
    assert_eq!((frame.ordinal, contents(&frame), frame.again), (2, (Some(1), Some(1)), true));
    assert_eq!(slots.due(), Some(now + 2 * RESEND_AFTER));
}

#[test]
fn an_answer_to_the_first_of_two_equal_frames_ends_the_resending() {
    let now = Instant::now();
    let mut slots = started(now);
    slots.take_frame(now + RESEND_AFTER).unwrap();
    assert!(slots.hear(1, &answer(ConfigApplyOutcome::Applied), now + RESEND_AFTER).report);
    assert_eq!(slots.due(), None);
    let late = slots.hear(2, &answer(ConfigApplyOutcome::IgnoredDuplicate), now + RESEND_AFTER);
    assert!(late.report, "the outcome has changed");
    assert_eq!(slots.verdict().number(), 2);
}

#[test]
fn newer_content_overtakes_an_unanswered_frame_after_half_a_second() {
    let now = Instant::now();
    let mut slots = started(now);
    assert!(slots.offer(entry(2, 2, 1), now + Duration::from_millis(100)));
    assert!(slots.take_frame(now + Duration::from_millis(499)).is_none());
    assert_eq!(contents(&slots.take_frame(now + OVERTAKE_AFTER).unwrap()), (Some(2), None));
}

#[test]
fn newer_content_follows_an_answer_at_once() {
    let now = Instant::now();
    let mut slots = started(now);
    slots.offer(entry(2, 2, 1), now);
    slots.hear(1, &answer(ConfigApplyOutcome::Applied), now);
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(2), None));
}

#[test]
fn a_reader_that_was_slow_gets_only_the_newest() {
    let now = Instant::now();
    let mut slots = started(now);
    for sequence in 2..100 {
        slots.offer(entry(sequence, sequence as u8, 1), now);
    }
    assert_eq!(contents(&slots.take_frame(now + SECOND).unwrap()), (Some(99), None));
    assert!(slots.take_frame(now + SECOND).is_none());
}

#[test]
fn going_back_to_installed_content_is_sent_if_something_else_was_sent_between() {
    let now = Instant::now();
    let mut slots = settled(now);
    slots.offer(entry(2, 2, 1), now);
    slots.take_frame(now).unwrap();
    slots.offer(entry(3, 1, 1), now);
    assert_eq!(contents(&slots.take_frame(now + OVERTAKE_AFTER).unwrap()), (Some(1), None));
}

#[test]
fn going_back_after_a_refusal_asks_for_a_fresh_verdict() {
    let now = Instant::now();
    let mut slots = settled(now);
    slots.offer(entry(2, 2, 1), now);
    slots.take_frame(now).unwrap();
    slots.hear(2, &answer(ConfigApplyOutcome::FailedRetainedLastKnownGood), now);
    slots.offer(entry(3, 1, 1), now);
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(1), None));
}

#[test]
fn a_refused_content_is_not_sent_again() {
    let now = Instant::now();
    let mut slots = started(now);
    assert!(slots.hear(1, &refusal(false), now).report);
    assert_eq!(slots.due(), None);
    let report = slots.verdict().report(uuid::Uuid::nil());
    assert_eq!(report.config.unwrap().error, "bad: no thanks");
    slots.offer(entry(2, 1, 1), now);
    assert_eq!(slots.due(), None);
    // New content of one half forgives the other, which was refused in the same frame.
    slots.offer(entry(3, 2, 1), now);
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(2), Some(1)));
}

#[test]
fn a_refusal_of_both_halves_is_forgiven_if_one_had_changed_before_it_arrived() {
    let now = Instant::now();
    let mut slots = started(now);
    slots.offer(entry(2, 2, 1), now);
    slots.hear(1, &refusal(false), now);
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(2), Some(1)));
}

#[test]
fn a_retryable_refusal_is_tried_again_with_growing_gaps() {
    let now = Instant::now();
    let mut slots = started(now);
    let mut at = now;
    let mut gaps = Vec::new();
    for ordinal in 1..10 {
        slots.hear(ordinal, &refusal(true), at);
        let due = slots.due().unwrap();
        gaps.push((due - at).as_secs());
        at = due;
        assert!(slots.take_frame(at).unwrap().again);
    }
    assert_eq!(gaps, [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]);
}

#[test]
fn a_stale_answer_makes_the_present_state_go_out_again_but_not_in_a_loop() {
    let now = Instant::now();
    let mut slots = started(now);
    let stale = answer(ConfigApplyOutcome::IgnoredStale);
    assert!(slots.hear(1, &stale, now).reread);
    assert!(slots.take_frame(now).unwrap().again);
    slots.hear(2, &stale, now);
    assert_eq!(slots.due(), Some(now + 2 * SECOND));
}

#[test]
fn an_unsupported_half_is_left_alone_for_the_session() {
    let now = Instant::now();
    let mut slots = settled(now);
    slots.offer(entry(2, 1, 2), now);
    slots.take_frame(now).unwrap();
    slots.hear(2, &answer(ConfigApplyOutcome::Unsupported), now);
    slots.offer(entry(3, 2, 3), now);
    assert_eq!(contents(&slots.take_frame(now).unwrap()), (Some(2), None));
    assert_eq!(slots.due().unwrap(), now + RESEND_AFTER);
}

#[test]
fn a_configuration_that_is_not_admitted_cannot_be_installed() {
    let now = Instant::now();
    let mut slots = Slots::default();
    let mut invalid = entry(1, 1, 1);
    invalid.config.configuration_admitted = false;
    slots.offer(invalid, now);
    slots.take_frame(now).unwrap();
    slots.hear(1, &answer(ConfigApplyOutcome::Applied), now);
    let report = slots.verdict().report(uuid::Uuid::nil());
    let (config, environment) = (report.config.unwrap(), report.environment.unwrap());
    assert_eq!(config.outcome(), ConfigApplyOutcome::FailedClosed);
    assert!(config.installed.is_empty());
    assert_eq!(environment.outcome(), ConfigApplyOutcome::Applied);
    assert_eq!(slots.due(), None);
}

#[test]
fn answers_to_unknown_or_answered_frames_change_nothing() {
    let now = Instant::now();
    let mut slots = settled(now);
    let before = slots.verdict().clone();
    for ordinal in [0, 1, 2, 77] {
        assert!(slots.hear(ordinal, &refusal(true), now).unknown, "{ordinal}");
    }
    assert_eq!((slots.verdict(), slots.due()), (&before, None));
}

#[test]
fn a_late_answer_adds_what_was_loaded_and_overrules_nothing() {
    let now = Instant::now();
    let mut slots = started(now);
    slots.offer(entry(2, 2, 1), now);
    slots.take_frame(now + OVERTAKE_AFTER).unwrap();
    slots.hear(2, &answer(ConfigApplyOutcome::Applied), now + SECOND);
    let late = ConfigUpdateResult {
        policy_load: Some(PolicyLoadResult { version: 1, loaded: true, error: String::new() }),
        admission: Some(SandboxConfigurationAdmission {
            policy_version: 1,
            ..SandboxConfigurationAdmission::default()
        }),
        ..answer(ConfigApplyOutcome::FailedClosed)
    };
    assert!(slots.hear(1, &late, now + SECOND).report);
    let report = slots.verdict().report(uuid::Uuid::nil());
    assert_eq!(report.config.as_ref().unwrap().outcome(), ConfigApplyOutcome::Applied);
    assert_eq!((report.number, report.loaded_version), (3, 1));
    // The environment went out with frame 1 only, so that answer is the newest word on it.
    assert_eq!(report.environment.unwrap().outcome(), ConfigApplyOutcome::FailedClosed);
}

#[test]
fn a_verdict_on_other_content_does_not_outlive_it() {
    use roadstead_proto::api::v1::ConfigurationAdmissionState::Rejected;
    let now = Instant::now();
    let mut slots = started(now);
    let admission = SandboxConfigurationAdmission { state: Rejected.into(), ..Default::default() };
    slots.hear(1, &ConfigUpdateResult { admission: Some(admission), ..refusal(false) }, now);
    slots.offer(entry(2, 2, 1), now);
    slots.take_frame(now).unwrap();
    slots.hear(2, &answer(ConfigApplyOutcome::Applied), now);
    assert_eq!(slots.verdict().report(uuid::Uuid::nil()).admission, None);
}

/// What may happen to a session.
#[derive(Clone, Debug)]
enum Step {
    Commit {
        config: Option<u8>,
        environment: Option<u8>,
    },
    /// An entry is seen again, out of order.
    Repeat(usize),
    Pass(u64),
    /// The transport takes a frame if one is due.
    Take,
    /// The supervisor answers the frame at this place of those that it holds.
    Answer {
        place: usize,
        outcome: ConfigApplyOutcome,
        retryable: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    use ConfigApplyOutcome as Outcome;
    let outcome = proptest::sample::select(vec![
        Outcome::Applied,
        Outcome::Applied,
        Outcome::IgnoredDuplicate,
        Outcome::IgnoredStale,
        Outcome::Degraded,
        Outcome::FailedClosed,
        Outcome::FailedRetainedLastKnownGood,
        Outcome::RetainedLocalOverride,
        Outcome::Unspecified,
    ]);
    prop_oneof![
        3 => (proptest::option::of(0_u8..6), proptest::option::of(0_u8..6))
            .prop_map(|(config, environment)| Step::Commit { config, environment }),
        1 => any::<usize>().prop_map(Step::Repeat),
        2 => prop_oneof![0_u64..600, 0_u64..120_000].prop_map(Step::Pass),
        4 => Just(Step::Take),
        3 => (0_usize..4, outcome, any::<bool>())
            .prop_map(|(place, outcome, retryable)| Step::Answer { place, outcome, retryable }),
    ]
}

/// A session in a world where every content has the sequence at which it was committed.
struct World {
    now: Instant,
    slots: Slots,
    entries: Vec<Entry>,
    /// Frames that the supervisor has not answered.
    held: Vec<Frame>,
    /// Sequence of the newest content sent, per half.
    sent: (u64, u64),
    last_taken: Option<Instant>,
    number: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: Instant::now(),
            slots: Slots::default(),
            entries: vec![entry(0, 0, 0)],
            held: Vec::new(),
            sent: (0, 0),
            last_taken: None,
            number: 0,
        };
        world.slots.offer(entry(0, 0, 0), world.now);
        world
    }

    fn newest(&self) -> &Entry {
        self.entries.last().unwrap()
    }

    fn take(&mut self) -> Option<Frame> {
        let frame = self.slots.take_frame(self.now)?;
        let newest = self.newest().clone();
        // What goes out is the newest there is, so nothing older can follow it.
        if let Some(config) = &frame.config {
            assert_eq!(config.version, newest.config.version);
            assert!(newest.order.sequence >= self.sent.0);
            self.sent.0 = newest.order.sequence;
        }
        if let Some(environment) = &frame.environment {
            assert_eq!(environment, &newest.environment);
            assert!(newest.order.sequence >= self.sent.1);
            self.sent.1 = newest.order.sequence;
        }
        self.last_taken = Some(self.now);
        self.held.push(frame.clone());
        Some(frame)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Commit { config, environment } => {
                let newest = self.newest();
                let next = entry(
                    newest.order.sequence + 1,
                    config.unwrap_or(newest.config.version as u8),
                    environment.unwrap_or(newest.environment[0]),
                );
                assert!(self.slots.offer(next.clone(), self.now));
                self.entries.push(next);
            }
            Step::Repeat(place) => {
                let old = self.entries[place % self.entries.len()].clone();
                assert!(!self.slots.offer(old, self.now));
            }
            Step::Pass(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Step::Take => {
                let taken = self.take();
                if taken.is_some() {
                    // One frame at a time: right after one, nothing else is due.
                    assert!(self.slots.take_frame(self.now).is_none());
                }
            }
            Step::Answer { place, outcome, retryable } => {
                if place < self.held.len() {
                    let frame = self.held.remove(place);
                    let failure = Some(ConfigApplyFailure { retryable, ..ConfigApplyFailure::default() });
                    let told = ConfigUpdateResult { failure, ..answer(outcome) };
                    let reaction = self.slots.hear(frame.ordinal, &told, self.now);
                    let number = self.slots.verdict().number();
                    assert_eq!(number > self.number, reaction.report, "a number rises with each report");
                    self.number = number;
                    // Whatever was said is no longer news.
                    assert!(self.slots.hear(frame.ordinal, &told, self.now).unknown);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn only_the_newest_is_sent_and_in_the_end_it_is_installed(steps in proptest::collection::vec(any_step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        // A last commit, and a supervisor that is well from now on.
        world.run(Step::Commit { config: Some(6), environment: Some(6) });
        for _ in 0..10 {
            if let Some(due) = world.slots.due() {
                world.now = world.now.max(due);
            }
            world.take();
            for frame in std::mem::take(&mut world.held) {
                world.slots.hear(frame.ordinal, &answer(ConfigApplyOutcome::Applied), world.now);
            }
        }
        prop_assert_eq!(world.slots.due(), None);
        let report = world.slots.verdict().report(uuid::Uuid::nil());
        let last = digest(6);
        prop_assert_eq!(&report.config.unwrap().installed[..], &last.bytes()[..]);
        prop_assert_eq!(&report.environment.unwrap().installed[..], &last.bytes()[..]);
        prop_assert_eq!(world.sent, (world.newest().order.sequence, world.newest().order.sequence));
    }

    #[test]
    fn newer_content_goes_out_within_half_a_second_of_the_last_frame_whatever_the_supervisor_says(
        steps in proptest::collection::vec(any_step(), 1..80)
    ) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        world.run(Step::Commit { config: Some(6), environment: Some(6) });
        let latest = world.last_taken.map_or(world.now, |taken| world.now.max(taken + OVERTAKE_AFTER));
        world.now = latest;
        // The halves may have been sent at different times, but both are out by now.
        while world.take().is_some() {}
        prop_assert_eq!(world.sent, (world.newest().order.sequence, world.newest().order.sequence));
    }
}
