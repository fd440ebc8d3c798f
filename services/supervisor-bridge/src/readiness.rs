//! What a session observes of its sandbox's providers. Pure: time comes in.
//!
//! A supervisor repeats itself every few seconds. What it repeats keeps the observation valid and goes no further;
//! admission hears of it only when what is observed changes, begins to count, or no longer does.

use std::time::{Duration, Instant};

use roadstead_proto::api::v1::ProviderReadinessObservation;
use roadstead_proto::id;
use roadstead_proto::internal::SessionReadiness;
use uuid::Uuid;

/// How often a supervisor should say what it observes.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// How long what it said counts.
pub const OBSERVATION_TTL: Duration = Duration::from_secs(15);

/// Longest policy hash, in bytes.
const HASH_BYTES: usize = 128;

/// Why an observation is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("observation.{field}: {description}")]
    Invalid { field: &'static str, description: &'static str },
    #[error("the hello did not say that this session reports the readiness of providers")]
    NotAnnounced,
    #[error("a later observation was recorded; sequence must rise")]
    Late,
    #[error("an observation of this sequence was recorded and says something else")]
    Changed,
}

/// What one session observes.
#[derive(Debug)]
pub struct Readiness {
    session_id: Uuid,
    announced: bool,
    newest: Option<ProviderReadinessObservation>,
    /// Until when it counts; none: it does not.
    valid_until: Option<Instant>,
    /// Ordinal of the last change that admission is told of.
    number: u64,
}

impl Readiness {
    /// A session begins. `announced`: its hello said that it observes the readiness of providers.
    #[must_use]
    pub const fn new(session_id: Uuid, announced: bool) -> Self {
        Self { session_id, announced, newest: None, valid_until: None, number: 0 }
    }

    /// Takes in an observation. Answers what admission is to be told, if that is anything new.
    ///
    /// # Errors
    /// Why it is not taken. Nothing is changed then.
    pub fn observe(
        &mut self,
        observation: ProviderReadinessObservation,
        now: Instant,
    ) -> Result<Option<SessionReadiness>, Refused> {
        if !self.announced {
            return Err(Refused::NotAnnounced);
        }
        check(&observation)?;
        if let Some(newest) = &self.newest {
            if observation.sequence < newest.sequence {
                return Err(Refused::Late);
            }
            if observation.sequence == newest.sequence {
                // A safe retry: it is taken already, and lasts no longer for it.
                return if observation == *newest { Ok(None) } else { Err(Refused::Changed) };
            }
        }
        let counted = self.valid_until.is_some_and(|until| now < until);
        let news = !counted || self.newest.as_ref().is_none_or(|newest| !same(newest, &observation));
        self.newest = Some(observation);
        self.valid_until = Some(now + OBSERVATION_TTL);
        Ok(news.then(|| self.told(self.newest.clone())))
    }

    /// Lets what is too old no longer count. Answers what admission is to be told then.
    pub fn lapse(&mut self, now: Instant) -> Option<SessionReadiness> {
        self.valid_until.take_if(|until| *until <= now)?;
        Some(self.told(None))
    }

    /// When what counts now becomes too old.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.valid_until
    }

    fn told(&mut self, observation: Option<ProviderReadinessObservation>) -> SessionReadiness {
        self.number += 1;
        SessionReadiness { session_id: self.session_id.to_string(), number: self.number, observation }
    }
}

/// Whether both observe the same, whenever they were made.
fn same(one: &ProviderReadinessObservation, other: &ProviderReadinessObservation) -> bool {
    ProviderReadinessObservation { sequence: other.sequence, ..one.clone() } == *other
}

fn check(observation: &ProviderReadinessObservation) -> Result<(), Refused> {
    let invalid = |field, description| Err(Refused::Invalid { field, description });
    if observation.sequence == 0 {
        return invalid("sequence", "must be 1 or more");
    }
    if id::canonical(&observation.attachment_epoch).is_none() {
        return invalid("attachment_epoch", "must be a canonical UUID");
    }
    if id::canonical(&observation.process_instance_id).is_none() {
        return invalid("process_instance_id", "must be a canonical UUID");
    }
    if observation.policy_hash.len() > HASH_BYTES || observation.policy_hash.contains(char::is_control) {
        return invalid("policy_hash", "must be a policy's hash");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(sequence: u64, config_revision: u64) -> ProviderReadinessObservation {
        let id = Uuid::from_u128(7).to_string();
        ProviderReadinessObservation {
            session_id: Uuid::from_u128(1).to_string(),
            sequence,
            attachment_epoch: id.clone(),
            config_revision,
            process_instance_id: id,
            ..Default::default()
        }
    }

    fn announced() -> Readiness {
        Readiness::new(Uuid::from_u128(1), true)
    }

    fn told(result: Result<Option<SessionReadiness>, Refused>) -> Option<(u64, Option<u64>)> {
        result.unwrap().map(|told| (told.number, told.observation.map(|observed| observed.config_revision)))
    }

    #[test]
    fn only_changes_are_told() {
        let now = Instant::now();
        let mut readiness = announced();
        assert_eq!(told(readiness.observe(seen(1, 5), now)), Some((1, Some(5))));
        assert_eq!(told(readiness.observe(seen(2, 5), now)), None);
        assert_eq!(told(readiness.observe(seen(7, 5), now)), None);
        assert_eq!(told(readiness.observe(seen(8, 6), now)), Some((2, Some(6))));
    }

    #[test]
    fn a_higher_sequence_replaces_an_equal_one_must_be_identical_and_a_lower_one_is_late() {
        let now = Instant::now();
        let mut readiness = announced();
        told(readiness.observe(seen(4, 5), now));
        assert_eq!(told(readiness.observe(seen(4, 5), now)), None);
        assert_eq!(readiness.observe(seen(4, 6), now), Err(Refused::Changed));
        assert_eq!(readiness.observe(seen(3, 5), now), Err(Refused::Late));
        assert_eq!(told(readiness.observe(seen(5, 6), now)), Some((2, Some(6))));
    }

    #[test]
    fn what_is_not_repeated_lapses_by_itself_and_a_retry_does_not_prolong_it() {
        let now = Instant::now();
        let mut readiness = announced();
        told(readiness.observe(seen(1, 5), now));
        told(readiness.observe(seen(1, 5), now + Duration::from_secs(9)));
        assert_eq!(readiness.due(), Some(now + OBSERVATION_TTL));
        told(readiness.observe(seen(2, 5), now + Duration::from_secs(10)));
        assert_eq!(readiness.lapse(now + Duration::from_secs(24)), None);
        let lapsed = readiness.lapse(now + Duration::from_secs(25)).unwrap();
        assert_eq!((lapsed.number, lapsed.observation), (2, None));
        assert_eq!((readiness.due(), readiness.lapse(now + Duration::from_secs(99))), (None, None));
        // The same content counts again, and that is news.
        let again = now + Duration::from_secs(100);
        assert_eq!(told(readiness.observe(seen(3, 5), again)), Some((3, Some(5))));
        assert_eq!(readiness.observe(seen(2, 5), again), Err(Refused::Late), "a lapse forgets no sequence");
    }

    #[test]
    fn what_is_malformed_or_was_not_announced_is_refused() {
        let now = Instant::now();
        assert_eq!(Readiness::new(Uuid::nil(), false).observe(seen(1, 1), now), Err(Refused::NotAnnounced));
        let upper = Uuid::from_u128(0xABCD).to_string().to_uppercase();
        for bad in [
            seen(0, 1),
            ProviderReadinessObservation { attachment_epoch: upper, ..seen(1, 1) },
            ProviderReadinessObservation { attachment_epoch: String::new(), ..seen(1, 1) },
            ProviderReadinessObservation { process_instance_id: "x".into(), ..seen(1, 1) },
            ProviderReadinessObservation { policy_hash: "\n".into(), ..seen(1, 1) },
            ProviderReadinessObservation { policy_hash: "x".repeat(HASH_BYTES + 1), ..seen(1, 1) },
        ] {
            assert!(matches!(announced().observe(bad, now), Err(Refused::Invalid { .. })));
        }
    }

    proptest! {
        /// Whatever happens: numbers rise by one, and what was told last is what counts.
        #[test]
        fn what_was_told_last_is_what_counts(
            steps in proptest::collection::vec((0_u64..4, 0_u64..2, 0_u64..20), 1..60),
        ) {
            let (mut now, mut sequence, mut number, mut last) = (Instant::now(), 0, 0, None);
            let mut readiness = announced();
            for (rise, revision, seconds) in steps {
                now += Duration::from_secs(seconds);
                let lapsed = readiness.lapse(now);
                sequence += rise;
                let observed = readiness.observe(seen(sequence, revision), now).unwrap_or_default();
                for told in [lapsed, observed].into_iter().flatten() {
                    number += 1;
                    prop_assert_eq!(told.number, number);
                    last = told.observation.map(|observed| observed.config_revision);
                }
                let counts = readiness.due().and(readiness.newest.as_ref()).map(|newest| newest.config_revision);
                prop_assert_eq!(last, counts);
            }
        }
    }
}
